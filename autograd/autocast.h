#pragma once

#include <optional>
#include <vector>

#include <voxgrad/core/tensor.h>

// Note [Autocast]
//
// Mixed precision with f32 parameters, as torch.autocast does it. While the guard lives, ops of this thread
// choose the dtype that they compute in:
//
//   16 bits      convolutions, matmul, nn::Linear
//   f32          softmax, log_softmax, logsumexp, exp, log, pow, rsqrt, softplus, sum, norm, layer_norm,
//                group_norm, and all losses
//   the wider    add, sub, mul, div, maximum, minimum, clamp, where, cat and stack of an f32 and a 16-bit
//   tensor unchanged    everything else; batch_norm and instance_norm take 16-bit x with f32 weights
//
//     {
//       const auto guard = vox::autocast(vox::bf16);
//       loss = vox::cross_entropy(net(x), target);
//     }
//     loss.backward();
//
// Casts are recorded, so gradients reach the parameters in f32. The cast of a parameter is kept until the
// guard ends or the parameter is written. f64 tensors are left alone. A backward runs without autocast: its
// dtypes follow from those of the forward. In f16 small gradients vanish; optim::GradScaler prevents that.

namespace vox {

/// Sets the 16-bit dtype of Note [Autocast] for this thread while it lives, or none; then the latest guard
/// that is left counts. Guards may end in any order, but on their own thread.
class AutocastGuard {
 public:
  /// Throws DTypeError for any dtype except bf16 and f16.
  explicit AutocastGuard(std::optional<DType> dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  friend struct AutocastState;
  struct Cast {
    Tensor parameter, cast;
    const Storage* storage;  // of the parameter when it was cast
    uint64_t version;
  };
  const std::optional<DType> dtype_;
  std::vector<Cast> casts_;
  AutocastGuard* previous_;  // the next outer guard of this thread
};

/// `const auto guard = vox::autocast(vox::bf16);`; vox::autocast(vox::bf16, false) switches it off.
[[nodiscard]] inline AutocastGuard autocast(DType dtype = bf16, bool enabled = true) {
  return AutocastGuard(enabled ? std::optional(dtype) : std::nullopt);
}

/// The dtype of the innermost guard on this thread; none if there is no guard or it is off.
std::optional<DType> autocast_dtype();

namespace detail {

// What ops ask about operands. These may be undefined.

/// The operand of a convolution or product: cast to autocast_dtype() if it is f32 or the other 16-bit dtype.
Tensor autocast_operand(const Tensor& t);
/// Whether an op that computes in f32 under autocast must cast t.
bool autocast_widens(const Tensor& t);
/// Whether one is f32 and the other 16-bit, under autocast.
bool autocast_mixes(const Tensor& a, const Tensor& b);

}  // namespace detail
}  // namespace vox

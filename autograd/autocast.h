#pragma once

#include <optional>
#include <vector>

#include <voxgrad/autograd/autocast_scope.h>

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

/// A scope that makes the cast of each parameter once.
class AutocastGuard final : public AutocastScope {
 public:
  /// Throws DTypeError for any dtype except bf16 and f16; none switches autocast off.
  explicit AutocastGuard(std::optional<DType> dtype);
  Tensor cast(const Tensor& t) override;

 private:
  struct Cast {
    Tensor parameter, cast;
    const Storage* storage;  // of the parameter when it was cast
    uint64_t version;
  };
  std::vector<Cast> casts_;
};

/// `const auto guard = vox::autocast(vox::bf16);`; vox::autocast(vox::bf16, false) switches it off.
[[nodiscard]] inline AutocastGuard autocast(DType dtype = bf16, bool enabled = true) {
  return AutocastGuard(enabled ? std::optional(dtype) : std::nullopt);
}

}  // namespace vox

#include <voxgrad/core/factories.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/loss.h>
#include <voxgrad/ops/reduce.h>

#include <limits>

// Losses are composed of recorded ops, so they need no gradients of their own. For 16-bit tensors they, and
// their gradients, are computed in f32 and rounded once.

namespace vox {

namespace {

constexpr ByDevice one_hot_kernel{"cross_entropy", &cpu::one_hot, VOX_CUDA(&cuda::one_hot)};

Tensor reduced(const Tensor& loss, Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      return loss;
    case Reduction::mean:
      return mean(loss);
    case Reduction::sum:
      return sum(loss);
  }
  throw ValueError("loss: corrupt value of Reduction");
}

/// input - target in opmath(dtype). Throws unless shapes, dtypes and devices are equal.
Tensor difference(const char* function, const Tensor& input, const Tensor& target) {
  detail::check_defined(function, "input", input);
  detail::check_defined(function, "target", target);
  detail::check_same_dtype(function, input, target);
  detail::check_same_device(function, input, target);
  detail::check_floating(function, "input", input);
  check<ShapeError>(input.shape() == target.shape(), function, ": the shapes must be equal, got ",
                    input.shape(), " and ", target.shape(), " (losses do not broadcast; use expand)");
  const DType wide = opmath(input.dtype());
  return input.to(wide) - target.to(wide);
}

void check_cross_entropy(const Tensor& input, const Tensor& target) {
  detail::check_defined("cross_entropy", "input", input);
  detail::check_defined("cross_entropy", "target", target);
  detail::check_same_device("cross_entropy", input, target);
  detail::check_floating("cross_entropy", "input", input);
  check<DTypeError>(target.dtype() == i64, "cross_entropy: target needs dtype i64, got ", target.dtype());
  check<ShapeError>(input.rank() >= 2, "cross_entropy: input must be (N, C, ...), got shape ", input.shape());
  Shape expected = input.shape();
  expected.erase(1);
  check<ShapeError>(target.shape() == expected, "cross_entropy: for input ", input.shape(),
                    " target must have shape ", expected, ", got ", target.shape());
}

/// For the CPU only, because it reads the whole target.
void check_classes(const Tensor& input, const Tensor& target) {
  if (input.device().is_cuda() || target.numel() == 0) return;
  const int64_t lowest = min(target).item<int64_t>(), highest = max(target).item<int64_t>();
  check<ValueError>(input.size(1) > 0, "cross_entropy: target holds classes from ", lowest, " to ", highest,
                    ", but input ", input.shape(), " has none");
  check<ValueError>(lowest >= 0 && highest < input.size(1), "cross_entropy: target holds classes from ",
                    lowest, " to ", highest, "; allowed are 0 to ", input.size(1) - 1);
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return in_the_name_of("mse_loss", [&] {
    const Tensor d = difference("mse_loss", input, target);
    return reduced(d * d, reduction).to(input.dtype());
  });
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return in_the_name_of("l1_loss", [&] {
    return reduced(abs(difference("l1_loss", input, target)), reduction).to(input.dtype());
  });
}

Tensor cross_entropy(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_cross_entropy(input, target);
  return in_the_name_of("cross_entropy", [&] {
    Tensor one_hot = empty(input.shape(), {boolean, input.device()});  // (N, C, ...)
    const TensorOptions wide{opmath(input.dtype()), input.device()};
    const Tensor zero = full({}, 0, wide), scores = log_softmax(input.to(wide.dtype), 1);
    check_classes(input, target);
    const int64_t inner = input.numel() == 0 ? 0 : target.numel() / input.size(0);
    one_hot_kernel.on(input.device())(target.contiguous(), input.size(1), inner, one_hot);
    // where(), not a product: a score of -inf for another class must not give 0 * inf.
    Tensor loss = -sum(where(one_hot, scores, zero), {1});  // (N, ...)
    if (input.device().is_cuda()) {  // a class out of range has no true element in one_hot
      const Tensor nan = full({}, std::numeric_limits<double>::quiet_NaN(), wide);
      loss = where(gt(sum(one_hot, {1}), 0), loss, nan);
    }
    return reduced(loss, reduction).to(input.dtype());
  });
}

}  // namespace vox

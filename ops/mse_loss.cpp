#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/difference.h>
#include <voxgrad/ops/loss_operands.h>
#include <voxgrad/ops/mse_loss.h>

// mse_loss and l1_loss. Their sums and means read both operands once and write one number.

namespace vox {

namespace detail {

DType loss_dtype(const Tensor& input) { return autocast_dtype() ? opmath(input.dtype()) : input.dtype(); }

void check_loss_dtypes(const char* function, const Tensor& a, const Tensor& b) {
  if (!autocast_mixes(a, b)) check_same_dtype(function, a, b);
}

void check_loss_pair(const char* function, const char* a_name, const Tensor& a, const char* b_name,
                     const Tensor& b) {
  check_defined(function, a_name, a);
  check_defined(function, b_name, b);
  check_loss_dtypes(function, a, b);
  check_same_device(function, a, b);
  check_floating(function, a_name, a);
  check<ShapeError>(a.shape() == b.shape(), function, ": the shapes must be equal, got ", a.shape(), " and ",
                    b.shape(), " (losses do not broadcast; use expand)");
}

Tensor loss_difference(const char* function, const Tensor& input, const Tensor& target) {
  check_loss_pair(function, "input", input, "target", target);
  const DType wide = opmath(input.dtype());
  return input.to(wide) - target.to(wide);
}

namespace {
/// A sum or mean of the difference's magnitudes or squares.
Tensor reduced_loss(const char* function, ReduceKind kind, const Tensor& input, const Tensor& target) {
  check_loss_pair(function, "input", input, "target", target);
  const bool mixed = input.dtype() != target.dtype();  // under autocast
  const Tensor x = mixed ? input.to(f32) : input, t = mixed ? target.to(f32) : target;
  return reduced_difference(function, kind, x, t, reduce_plan(function, x, {}, false), loss_dtype(input));
}
}  // namespace

}  // namespace detail

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return in_the_name_of("mse_loss", [&] {
    if (reduction == Reduction::mean)
      return detail::reduced_loss("mse_loss", ReduceKind::mean_square, input, target);
    if (reduction == Reduction::sum)
      return detail::reduced_loss("mse_loss", ReduceKind::sum_of_squares, input, target);
    const Tensor d = detail::loss_difference("mse_loss", input, target);
    return (d * d).to(detail::loss_dtype(input));
  });
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return in_the_name_of("l1_loss", [&] {
    if (reduction == Reduction::mean)
      return detail::reduced_loss("l1_loss", ReduceKind::mean_magnitude, input, target);
    if (reduction == Reduction::sum)
      return detail::reduced_loss("l1_loss", ReduceKind::sum_of_magnitudes, input, target);
    return abs(detail::loss_difference("l1_loss", input, target)).to(detail::loss_dtype(input));
  });
}

}  // namespace vox

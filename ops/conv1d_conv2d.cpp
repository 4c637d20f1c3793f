#include <voxgrad/autograd/autocast.h>
#include <voxgrad/ops/added_axes.h>
#include <voxgrad/ops/conv1d_conv2d.h>
#include <voxgrad/ops/conv3d_recorded.h>

// Convolutions over one and two dimensions are convolutions over three, with grids and kernels of size 1 on
// the added axes.

namespace vox {
namespace {

using detail::lift;

template <class Options>
Conv3dOptions lifted(const Options& o) {
  return {.stride = lift(o.stride, 1),
          .padding = lift(o.padding, 0),
          .dilation = lift(o.dilation, 1),
          .groups = o.groups};
}

template <class Options>
requires requires(Options o) { o.output_padding; }
ConvTranspose3dOptions lifted(const Options& o) {
  return {.stride = lift(o.stride, 1),
          .padding = lift(o.padding, 0),
          .output_padding = lift(o.output_padding, 0),
          .groups = o.groups,
          .dilation = lift(o.dilation, 1),
          .output_size = lift(o.output_size, 1)};
}

/// Checks the ranks for a convolution over `axes` dimensions, and runs `op`, conv3d or conv_transpose3d, on
/// tensors with added axes.
template <class Options3d, class Options>
Tensor lowered(const char* function, int64_t axes,
               Tensor (*op)(const detail::Caller&, const Tensor&, const Tensor&, const Tensor&,
                            const Options3d&),
               const Tensor& input, const Tensor& weight, const Tensor& bias, const Options& options) {
  detail::check_defined(function, "input", input);
  detail::check_defined(function, "weight", weight);
  check<ShapeError>(input.rank() == axes + 2 || input.rank() == axes + 1, function, ": input must have ",
                    axes + 2, " dimensions, or ", axes + 1, " without a batch, got shape ", input.shape());
  check<ShapeError>(weight.rank() == axes + 2, function, ": weight must have ", axes + 2,
                    " dimensions, got shape ", weight.shape());
  const Tensor x = detail::with_added_axes(input, axes),
               w = detail::with_added_axes(detail::autocast_operand(weight), axes);
  return detail::without_added_axes(op({function, axes}, x, w, bias, lifted(options)), axes);
}

}  // namespace

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Conv1dOptions& o) {
  return lowered("conv1d", 1, detail::conv3d, input, weight, bias, o);
}

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Conv2dOptions& o) {
  return lowered("conv2d", 2, detail::conv3d, input, weight, bias, o);
}

Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dOptions& o) {
  return lowered("conv_transpose1d", 1, detail::conv_transpose3d, input, weight, bias, o);
}

Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& o) {
  return lowered("conv_transpose2d", 2, detail::conv_transpose3d, input, weight, bias, o);
}

namespace detail {

void check_options(const char* function, int64_t kernel_size, const Conv1dOptions& o) {
  check_options(Caller(function, 1), lift(kernel_size, 1), lifted(o));
}
void check_options(const char* function, const Pair& kernel_size, const Conv2dOptions& o) {
  check_options(Caller(function, 2), lift(kernel_size, 1), lifted(o));
}
void check_options(const char* function, int64_t kernel_size, const ConvTranspose1dOptions& o) {
  check_options(Caller(function, 1), lift(kernel_size, 1), lifted(o));
}
void check_options(const char* function, const Pair& kernel_size, const ConvTranspose2dOptions& o) {
  check_options(Caller(function, 2), lift(kernel_size, 1), lifted(o));
}

}  // namespace detail

}  // namespace vox

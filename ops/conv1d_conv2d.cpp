#include <voxgrad/autograd/autocast.h>
#include <voxgrad/ops/conv1d_conv2d.h>
#include <voxgrad/ops/conv3d_recorded.h>

// Convolutions over one and two dimensions are convolutions over three, with grids and kernels of size 1 on
// the added axes. All reshaping is by views.

namespace vox {
namespace {

/// t with `missing` dimensions of size 1 after its batch (if any) and channels.
Tensor lift(Tensor t, int64_t missing, int64_t spatial) {
  for (int64_t i = 0; i < missing; ++i) t = t.unsqueeze(t.rank() - spatial);
  return t;
}

Tensor drop(Tensor t, int64_t missing, int64_t spatial) {
  for (int64_t i = 0; i < missing; ++i) t = t.squeeze(t.rank() - spatial - 1);
  return t;
}

/// Checks the ranks for a convolution over `spatial` dimensions, runs `op` on the lifted tensors and
/// drops the added dimensions from its result.
template <class Op>
Tensor lowered(const char* function, int64_t spatial, const Tensor& input, const Tensor& weight, Op op) {
  detail::check_defined(function, "input", input);
  detail::check_defined(function, "weight", weight);
  check<ShapeError>(input.rank() == spatial + 2 || input.rank() == spatial + 1, function,
                    ": input must have ", spatial + 2, " dimensions, or ", spatial + 1,
                    " without a batch, got shape ", input.shape());
  check<ShapeError>(weight.rank() == spatial + 2, function, ": weight must have ", spatial + 2,
                    " dimensions, got shape ", weight.shape());
  const int64_t missing = 3 - spatial;
  return drop(op(lift(input, missing, spatial), lift(detail::autocast_operand(weight), missing, spatial)),
              missing, spatial);
}

Conv3dOptions lift(const Conv1dOptions& o) {
  return {.stride = {1, 1, o.stride},
          .padding = {0, 0, o.padding},
          .dilation = {1, 1, o.dilation},
          .groups = o.groups};
}

Conv3dOptions lift(const Conv2dOptions& o) {
  return {.stride = {1, o.stride.h, o.stride.w},
          .padding = {0, o.padding.h, o.padding.w},
          .dilation = {1, o.dilation.h, o.dilation.w},
          .groups = o.groups};
}

ConvTranspose3dOptions lift(const ConvTranspose1dOptions& o) {
  ConvTranspose3dOptions options{.stride = {1, 1, o.stride},
                                 .padding = {0, 0, o.padding},
                                 .output_padding = {0, 0, o.output_padding},
                                 .groups = o.groups,
                                 .dilation = {1, 1, o.dilation}};
  if (o.output_size) options.output_size = Triple(1, 1, *o.output_size);
  return options;
}

ConvTranspose3dOptions lift(const ConvTranspose2dOptions& o) {
  ConvTranspose3dOptions options{.stride = {1, o.stride.h, o.stride.w},
                                 .padding = {0, o.padding.h, o.padding.w},
                                 .output_padding = {0, o.output_padding.h, o.output_padding.w},
                                 .groups = o.groups,
                                 .dilation = {1, o.dilation.h, o.dilation.w}};
  if (o.output_size) options.output_size = Triple(1, o.output_size->h, o.output_size->w);
  return options;
}

}  // namespace

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Conv1dOptions& o) {
  return lowered("conv1d", 1, input, weight, [&](const Tensor& x, const Tensor& w) {
    return detail::conv3d({"conv1d", 1}, x, w, bias, lift(o));
  });
}

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Conv2dOptions& o) {
  return lowered("conv2d", 2, input, weight, [&](const Tensor& x, const Tensor& w) {
    return detail::conv3d({"conv2d", 2}, x, w, bias, lift(o));
  });
}

Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dOptions& o) {
  return lowered("conv_transpose1d", 1, input, weight, [&](const Tensor& x, const Tensor& w) {
    return detail::conv_transpose3d({"conv_transpose1d", 1}, x, w, bias, lift(o));
  });
}

Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& o) {
  return lowered("conv_transpose2d", 2, input, weight, [&](const Tensor& x, const Tensor& w) {
    return detail::conv_transpose3d({"conv_transpose2d", 2}, x, w, bias, lift(o));
  });
}

namespace detail {

void check_options(const char* function, int64_t kernel_size, const Conv1dOptions& o) {
  check_options(Caller(function, 1), {1, 1, kernel_size}, lift(o));
}
void check_options(const char* function, const Pair& kernel_size, const Conv2dOptions& o) {
  check_options(Caller(function, 2), {1, kernel_size.h, kernel_size.w}, lift(o));
}
void check_options(const char* function, int64_t kernel_size, const ConvTranspose1dOptions& o) {
  check_options(Caller(function, 1), {1, 1, kernel_size}, lift(o));
}
void check_options(const char* function, const Pair& kernel_size, const ConvTranspose2dOptions& o) {
  check_options(Caller(function, 2), {1, kernel_size.h, kernel_size.w}, lift(o));
}

}  // namespace detail

}  // namespace vox

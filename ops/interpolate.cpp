#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/added_axes.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/interpolate.h>
#include <voxgrad/ops/layer_kernels.h>

#include <algorithm>
#include <cmath>

namespace vox {

namespace detail {
/// The linear map and its adjoint; both recorded, each the gradient of the other.
Tensor interpolate(const Tensor& input, const InterpolateAxes& axes);
Tensor interpolate_adjoint(const Tensor& grad_output, const InterpolateAxes& axes);
}  // namespace detail

namespace {

using Mode = InterpolateOptions::Mode;

constexpr ByDevice kernel{"interpolate", in_f32<&cpu::interpolate>, VOX_CUDA(&cuda::interpolate)};
constexpr ByDevice adjoint_kernel{"interpolate", in_f32<&cpu::interpolate_adjoint>,
                                  VOX_CUDA(&cuda::interpolate_adjoint)};

constexpr int64_t first_spatial_dim = 2;

int64_t scaled_size(int64_t in, double scale) {
  const double size = std::floor(static_cast<double>(in) * scale);
  check<ShapeError>(size < 9.0e15, "interpolate: size ", in, " times scale_factor ", scale,
                    " is more than a tensor can hold");
  return static_cast<int64_t>(size);
}

InterpolateAxis make_axis(int64_t in, int64_t out, const double* scale, const InterpolateOptions& options) {
  check<ShapeError>(out >= 1, "interpolate: the output sizes must be >= 1, got ", out,
                    " on an axis of input size ", in);
  if (in == out) return {.in = in, .out = out};  // a copy
  InterpolateAxis axis{.in = in, .out = out, .nearest = options.mode == Mode::nearest};
  if (options.align_corners) {
    axis.numerator = static_cast<double>(out > 1 ? in - 1 : 0);
    axis.denominator = static_cast<double>(out > 1 ? out - 1 : 1);
    return axis;
  }
  axis.numerator = scale ? 1 : static_cast<double>(in);
  axis.denominator = scale ? *scale : static_cast<double>(out);
  axis.offset = axis.nearest ? 0 : 0.5;
  return axis;
}

/// `given` is the shape of the input before axes were added to it.
InterpolateAxes make_axes(const Tensor& input, const Shape& given, const InterpolateOptions& options) {
  detail::check_defined("interpolate", "input", input);
  const Shape& shape = input.shape();
  check<ShapeError>(shape.rank() == 5,
                    "interpolate: the input must be (N, C, D, H, W), (N, C, H, W) or (N, C, W), got ", shape);
  detail::check_floating("interpolate", "input", input);
  detail::check_options("interpolate", options);
  InterpolateAxes axes;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t in = shape[first_spatial_dim + i];
    check<ShapeError>(in >= 1, "interpolate: D, H and W of the input must be >= 1, got ", given);
    const double* scale = options.scale_factor ? &(*options.scale_factor)[static_cast<size_t>(i)] : nullptr;
    const int64_t out = scale ? scaled_size(in, *scale) : (*options.size)[i];
    axes[static_cast<size_t>(i)] = make_axis(in, out, scale, options);
  }
  return axes;
}

}  // namespace

namespace detail {

void check_options(const char* function, const InterpolateOptions& options) {
  check<ValueError>(options.size.has_value() != options.scale_factor.has_value(), function,
                    ": needs exactly one of size and scale_factor, got ", options.size ? "both" : "neither");
  check<ValueError>(options.mode == Mode::trilinear || !options.align_corners, function,
                    ": align_corners goes with mode trilinear only, got mode nearest");
  const Triple size = options.size.value_or(1);
  const int64_t least = std::min({size.d, size.h, size.w});  // an added axis has 1
  if (options.size)
    check<ShapeError>(least >= 1, function, ": the output sizes must be >= 1, got ", least);
  else
    for (const double scale : *options.scale_factor)
      check<ValueError>(std::isfinite(scale) && scale > 0, function,
                        ": a scale_factor must be positive and finite, got ", scale);
}

namespace {

/// The result of a kernel that turns axes[i].*from cells into axes[i].*to.
template <class Kernel>
Tensor resized(const Kernel& kernel, const Tensor& x, const InterpolateAxes& axes,
               int64_t InterpolateAxis::*to) {
  Shape shape = x.shape();
  for (size_t i = 0; i < 3; ++i) shape[first_spatial_dim + static_cast<int64_t>(i)] = axes[i].*to;
  Tensor y = empty_for("interpolate", shape, x.options());
  if (y.numel() > 0) kernel.on(y.device())(x.detach(), axes, y);
  return y;
}

}  // namespace

Tensor interpolate(const Tensor& input, const InterpolateAxes& axes) {
  const Tensor y = resized(kernel, input, axes, &InterpolateAxis::out);
  return autograd::linear("interpolate", {input}, y,
                          [axes](const Tensor& g) { return interpolate_adjoint(g, axes); });
}

Tensor interpolate_adjoint(const Tensor& grad_output, const InterpolateAxes& axes) {
  const Tensor grad_input = resized(adjoint_kernel, grad_output, axes, &InterpolateAxis::in);
  return autograd::linear("interpolate_adjoint", {grad_output}, grad_input,
                          [axes](const Tensor& g) { return interpolate(g, axes); });
}

}  // namespace detail

Tensor interpolate(const Tensor& input, const InterpolateOptions& options) {
  detail::check_defined("interpolate", "input", input);
  const int64_t rank = input.rank();
  if (rank != 3 && rank != 4) return detail::interpolate(input, make_axes(input, input.shape(), options));
  InterpolateOptions with_depth = options;
  for (int64_t i = 0; i < 5 - rank; ++i) {
    if (options.size) (*with_depth.size)[i] = 1;
    if (options.scale_factor) (*with_depth.scale_factor)[static_cast<size_t>(i)] = 1;
  }
  const Tensor volume = detail::with_added_axes(input, rank - 2);
  const Tensor y = detail::interpolate(volume, make_axes(volume, input.shape(), with_depth));
  return detail::without_added_axes(y, rank - 2);
}

}  // namespace vox

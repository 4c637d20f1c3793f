#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/interpolate.h>
#include <voxgrad/ops/kernels.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace vox {

namespace detail {
/// The linear map and its adjoint; both recorded, each the gradient of the other.
Tensor interpolate(const Tensor& input, const InterpolateAxes& axes);
Tensor interpolate_adjoint(const Tensor& grad_output, const InterpolateAxes& axes);
}  // namespace detail

namespace {

using Mode = InterpolateOptions::Mode;

constexpr ByDevice axis_kernel{"interpolate", &cpu::interpolate_axis, VOX_CUDA(&cuda::interpolate_axis)};
constexpr ByDevice axis_adjoint_kernel{"interpolate", &cpu::interpolate_axis_adjoint,
                                       VOX_CUDA(&cuda::interpolate_axis_adjoint)};
constexpr ByDevice passes_kernel{"interpolate", &cpu::interpolate_passes, nullptr};
constexpr ByDevice passes_adjoint_kernel{"interpolate", &cpu::interpolate_passes_adjoint, nullptr};

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

InterpolateAxes make_axes(const Tensor& input, const InterpolateOptions& options) {
  detail::check_defined("interpolate", "input", input);
  const Shape& shape = input.shape();
  check<ShapeError>(shape.rank() == 5, "interpolate: the input must be (N, C, D, H, W), got ", shape);
  detail::check_floating("interpolate", "input", input);
  detail::check_options("interpolate", options);
  InterpolateAxes axes;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t in = shape[first_spatial_dim + i];
    check<ShapeError>(in >= 1, "interpolate: D, H and W of the input must be >= 1, got ", shape);
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
  if (options.size)
    check<ShapeError>(std::min({options.size->d, options.size->h, options.size->w}) >= 1, function,
                      ": the output sizes must be >= 1, got ", *options.size);
  else
    for (const double scale : *options.scale_factor)
      check<ValueError>(std::isfinite(scale) && scale > 0, function,
                        ": a scale_factor must be positive and finite, got ", scale);
}

namespace {

struct InterpolateNode : autograd::Node {
  InterpolateAxes axes_;
  const char* name() const override { return "interpolate"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    return {if_needed(0, [&] { return interpolate_adjoint(*g[0], axes_); })};
  }
};

struct InterpolateAdjointNode : autograd::Node {
  InterpolateAxes axes_;
  const char* name() const override { return "interpolate_adjoint"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    return {if_needed(0, [&] { return interpolate(*g[0], axes_); })};
  }
};

// The axes to resize. Those that shrink come first, so that no intermediate is larger than both input and
// output. Those that grow come from W to D, because an upsampled W makes the rows of the later passes long.
std::vector<int64_t> pass_order(const InterpolateAxes& axes) {
  std::vector<int64_t> order;
  for (size_t i : {0, 1, 2})
    if (axes[i].out < axes[i].in) order.push_back(static_cast<int64_t>(i));
  for (size_t i : {2, 1, 0})
    if (axes[i].out > axes[i].in) order.push_back(static_cast<int64_t>(i));
  return order;
}

template <class Kernel>
Tensor run_pass(const Kernel& kernel, const Tensor& x, int64_t dim, const InterpolateAxis& axis,
                int64_t size) {
  Shape shape = x.shape();
  shape[dim] = size;
  Tensor y = empty_for("interpolate", shape, x.options());
  if (y.numel() > 0) kernel.on(y.device())(x, dim, axis, y);
  return y;
}

/// Whether the CPU does all passes plane by plane: if there are planes for every thread, and they are small.
bool plane_by_plane(const Tensor& x, const Shape& result) {
  constexpr int64_t enough = 16, most_elements = int64_t{1} << 21;
  const int64_t planes = x.shape()[0] * x.shape()[1];
  return x.device().is_cpu() && planes >= enough && x.numel() / planes <= most_elements &&
         checked_numel("interpolate", result) / planes <= most_elements;
}

/// The dense result of all passes; a pass turns axes[i].*from cells into axes[i].*to. x itself if there is no
/// pass and x is dense.
template <class Passes, class Kernel>
Tensor run_passes(const Passes& passes, const Kernel& kernel, Tensor x, const std::vector<int64_t>& order,
                  const InterpolateAxes& axes, int64_t InterpolateAxis::*to) {
  Shape shape = x.shape();
  for (const int64_t i : order) shape[first_spatial_dim + i] = axes[static_cast<size_t>(i)].*to;
  checked_bytes("interpolate", shape, x.dtype());
  if (!order.empty() && plane_by_plane(x, shape)) {
    Tensor y = empty_for("interpolate", shape, x.options());
    if (y.numel() > 0) passes.on(y.device())(x, order, axes, y);
    return y;
  }
  x = x.contiguous();
  for (const int64_t i : order) {
    const InterpolateAxis& axis = axes[static_cast<size_t>(i)];
    x = run_pass(kernel, x, first_spatial_dim + i, axis, axis.*to);
  }
  return x;
}

}  // namespace

Tensor interpolate(const Tensor& input, const InterpolateAxes& axes) {
  Tensor y = widened(input.detach());
  y = run_passes(passes_kernel, axis_kernel, y, pass_order(axes), axes, &InterpolateAxis::out);
  y = y.to(input.dtype());
  if (y.impl()->storage == input.impl()->storage) y = y.clone();
  if (auto node = autograd::record<InterpolateNode>({input}, y)) node->axes_ = axes;
  return y;
}

Tensor interpolate_adjoint(const Tensor& grad_output, const InterpolateAxes& axes) {
  Tensor grad_input = widened(grad_output.detach());
  std::vector<int64_t> order = pass_order(axes);
  std::reverse(order.begin(), order.end());
  grad_input =
      run_passes(passes_adjoint_kernel, axis_adjoint_kernel, grad_input, order, axes, &InterpolateAxis::in);
  grad_input = grad_input.to(grad_output.dtype());
  if (grad_input.impl()->storage == grad_output.impl()->storage) grad_input = grad_input.clone();
  if (auto node = autograd::record<InterpolateAdjointNode>({grad_output}, grad_input)) node->axes_ = axes;
  return grad_input;
}

}  // namespace detail

Tensor interpolate(const Tensor& input, const InterpolateOptions& options) {
  return detail::interpolate(input, make_axes(input, options));
}

}  // namespace vox

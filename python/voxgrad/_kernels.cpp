#include <voxgrad/ops/conv3d_recorded.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layer_kernels.h>

#include <map>
#include <string>

#include "capi/arguments.h"

// Kernels by name, on dense tensors whose memory the caller owns, their results among them: for a framework
// that plans its memory and differentiates by itself (python/voxgrad/torch/_ops.py and _layers.py). Only the
// convolutions check their operands.

namespace {

using namespace vox;
using detail::NormStatistics;

// ---- Convolutions of one, two or three axes; all their gradients are composed of these two ---------------

constexpr ByDevice conv3d_kernel{"conv3d", &cpu::conv3d, VOX_CUDA(&cuda::conv3d)};
constexpr ByDevice conv_transpose3d_kernel{"conv_transpose3d", &cpu::conv_transpose3d,
                                           VOX_CUDA(&cuda::conv_transpose3d)};
constexpr ByDevice weight_grad_kernel{"conv3d_weight_grad", &cpu::conv3d_weight_grad,
                                      VOX_CUDA(&cuda::conv3d_weight_grad)};

/// What a convolution has beside its tensors, one number for each of its axes. The size of the result is
/// given, because the gradient of a strided convolution has the size of its input, which does not follow.
struct Steps {
  Shape output_size, stride, padding, dilation;
  int64_t groups;
  bool transposed;
  Float32Precision precision;
};
auto fields(Steps& s) {
  return std::tie(s.output_size, s.stride, s.padding, s.dilation, s.groups, s.transposed, s.precision);
}

/// A convolution with its tensors lifted to a batch, channels and three axes.
struct Convolution {
  detail::Caller caller;
  Steps steps;
  Conv3dGeometry geometry;
  Tensor input;

  /// Throws what conv3d() and conv_transpose3d() throw.
  Convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Steps& s)
      : caller(caller_of(x, weight, s.transposed)), steps(s), input(lifted(x)) {
    for (const Shape* numbers : {&s.output_size, &s.stride, &s.padding, &s.dilation})
      check<ValueError>(numbers->rank() == caller.spatial, caller, ": each option must have ", caller.spatial,
                        " numbers, got ", *numbers);
    detail::check_operands(caller, "input", x, "weight", weight);
    geometry = geometry_of(input.shape(), lifted(weight).shape());
    if (bias.defined())
      check<ShapeError>(bias.rank() == 1, caller, ": bias must have 1 dimension, got ", bias.rank());
    detail::check_bias(caller, x, bias, s.transposed ? geometry.big_channels : geometry.small_channels);
  }

  Tensor lifted(Tensor t) const {
    if (t.rank() == caller.spatial + 1) t = t.unsqueeze(0);
    while (t.rank() < 5) t = t.unsqueeze(2);
    return t;
  }

 private:
  static detail::Caller caller_of(const Tensor& x, const Tensor& weight, bool transposed) {
    constexpr const char* names[2][3] = {{"conv1d", "conv2d", "conv3d"},
                                         {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}};
    const int64_t axes = weight.rank() - 2;
    check<ShapeError>(axes >= 1 && axes <= 3, "convolution: weight must have 3 to 5 dimensions, got shape ",
                      weight.shape());
    const detail::Caller caller(names[transposed][axes - 1], axes, x.rank() == axes + 2);
    check<ShapeError>(caller.batched || x.rank() == axes + 1, caller, ": input must have ", axes + 2,
                      " dimensions, or ", axes + 1, " without a batch, got shape ", x.shape());
    return caller;
  }
  Triple lifted(const Shape& numbers, int64_t added) const {
    Triple triple(added);
    for (int64_t axis = 0; axis < caller.spatial; ++axis) triple[3 - caller.spatial + axis] = numbers[axis];
    return triple;
  }
  Conv3dGeometry geometry_of(const Shape& x, const Shape& w) const {
    const Triple output = lifted(steps.output_size, 1), stride = lifted(steps.stride, 1),
                 padding = lifted(steps.padding, 0), dilation = lifted(steps.dilation, 1);
    const auto transposed_to = [&](const Shape& small, const Triple& big) {
      return detail::conv_transpose3d_geometry(caller, small, w,
                                               {.stride = stride,
                                                .padding = padding,
                                                .groups = steps.groups,
                                                .dilation = dilation,
                                                .output_size = big});
    };
    if (steps.transposed) return transposed_to(x, output);
    const Conv3dGeometry g = detail::conv3d_geometry(
        caller, x, w, {.stride = stride, .padding = padding, .dilation = dilation, .groups = steps.groups});
    if (g.small == output) return g;
    // The gradient of a transposed convolution with output_padding >= stride gives fewer cells than conv3d.
    return transposed_to({x[0], w[0], output.d, output.h, output.w}, {x[2], x[3], x[4]});
  }
};

/// Without `y` it only checks the operands.
void convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
                 const Steps& steps) {
  const Convolution c(x, weight, bias, steps);
  if (!y.defined()) return;
  Tensor result = c.lifted(y);
  check<ShapeError>(result.shape() == (steps.transposed ? c.geometry.big_shape() : c.geometry.small_shape()),
                    c.caller, ": the result has shape ", y.shape(), ", which does not fit");
  (steps.transposed ? conv_transpose3d_kernel : conv3d_kernel)
      .on(x.device(), c.caller)(c.input, c.lifted(weight), bias, result, c.geometry, steps.precision);
}

/// The gradients of weight and bias for `grad`, the gradient of the result.
void convolution_weight_grad(const Tensor& x, const Tensor& grad, const Tensor& grad_weight, Tensor grad_bias,
                             const Steps& steps) {
  const Convolution c(x, grad_weight, grad_bias, steps);
  detail::check_operands(c.caller, "input", x, "grad_output", grad);
  Tensor small = c.input, big = c.lifted(grad), result = c.lifted(grad_weight);
  if (!steps.transposed) std::swap(small, big);
  check<ShapeError>(big.shape() == c.geometry.big_shape() && small.shape() == c.geometry.small_shape(),
                    c.caller, ": the gradient of the result has shape ", grad.shape(),
                    ", which does not fit");
  weight_grad_kernel.on(x.device(), c.caller)(
      big, small, result, grad_bias, steps.transposed ? Grid::big : Grid::small, c.geometry, steps.precision);
}

// ---- Norms, pooling, interpolation ---------------------------------------------------------------------

constexpr ByDevice norm_kernel{"norm", &cpu::norm, VOX_CUDA(&cuda::norm)};
constexpr ByDevice norm_gradient_kernel{"norm_gradient", &cpu::norm_gradient, VOX_CUDA(&cuda::norm_gradient)};
constexpr ByDevice max_pool_kernel{"max_pool3d", in_f32<&cpu::max_pool3d>, VOX_CUDA(&cuda::max_pool3d)};
constexpr ByDevice scatter_add_kernel{"max_pool3d", in_f32<&cpu::max_pool3d_scatter_add>,
                                      VOX_CUDA(&cuda::max_pool3d_scatter_add)};
constexpr ByDevice interpolate_kernel{"interpolate", in_f32<&cpu::interpolate>, VOX_CUDA(&cuda::interpolate)};
constexpr ByDevice interpolate_adjoint_kernel{"interpolate", in_f32<&cpu::interpolate_adjoint>,
                                              VOX_CUDA(&cuda::interpolate_adjoint)};

/// pieces, rows, length, groups, inner
detail::NormGeometry norm_geometry(const Shape& n) { return {n[0], n[1], n[2], n[3], n[4]}; }

void norm(const Tensor& x, const Shape& geometry, const Tensor& weight, const Tensor& bias, double eps,
          double slope, Tensor y, const Tensor& mean, const Tensor& rstd) {
  NormStatistics statistics{mean, rstd};
  detail::RunningStatistics none;
  norm_kernel.on(x.device())(x, norm_geometry(geometry), weight, bias, eps, Activation{slope}, y, statistics,
                             none);
}

void norm_gradient(const Tensor& grad_y, const Tensor& x, const Shape& geometry, const Tensor& weight,
                   const Tensor& bias, const Tensor& mean, const Tensor& rstd, double slope, Tensor grad_x,
                   Tensor grad_weight, Tensor grad_bias) {
  norm_gradient_kernel.on(x.device())(grad_y, x, norm_geometry(geometry), weight, bias,
                                      NormStatistics{mean, rstd}, true, Activation{slope}, grad_x,
                                      grad_weight, grad_bias);
}

Pool3dGeometry pool_geometry(const Tensor& x, const Tensor& y, const Triple& kernel, const Triple& stride,
                             const Triple& padding, const Triple& dilation) {
  const auto size = [](const Tensor& t) { return Triple(t.size(-3), t.size(-2), t.size(-1)); };
  return {.in = size(x),
          .out = size(y),
          .kernel = kernel,
          .stride = stride,
          .padding = padding,
          .dilation = dilation};
}

void max_pool3d(const Tensor& x, const Triple& kernel, const Triple& stride, const Triple& padding,
                const Triple& dilation, Tensor y, Tensor indices) {
  max_pool_kernel.on(x.device())(x, pool_geometry(x, y, kernel, stride, padding, dilation), y, indices);
}

void max_pool3d_gradient(const Tensor& grad_y, const Tensor& indices, const Triple& kernel,
                         const Triple& stride, const Triple& padding, const Triple& dilation, Tensor grad_x) {
  scatter_add_kernel.on(grad_y.device())(
      grad_y, indices, pool_geometry(grad_x, grad_y, kernel, stride, padding, dilation), grad_x);
}

using PerAxis = std::array<double, 3>;

/// The other arguments are fields of InterpolateAxis.
void interpolate(const Tensor& x, bool adjoint, const PerAxis& numerator, const PerAxis& denominator,
                 const PerAxis& offset, const PerAxis& nearest, Tensor y) {
  const Tensor &from = adjoint ? y : x, &to = adjoint ? x : y;
  InterpolateAxes axes;
  for (size_t i = 0; i < 3; ++i) {
    const auto dim = static_cast<int64_t>(2 + i);
    axes[i] = {from.size(dim), to.size(dim), numerator[i], denominator[i], offset[i], nearest[i] != 0};
  }
  (adjoint ? interpolate_adjoint_kernel : interpolate_kernel).on(x.device())(x, axes, y);
}

using Kernel = std::function<void(const capi::Values&)>;

template <class... P>
Kernel by_values(void (*kernel)(P...)) {
  return [kernel](const capi::Values& values) {
    capi::Reader reader(values);
    const std::tuple<std::decay_t<P>...> parameters{reader.next<std::decay_t<P>>()...};
    reader.finish();
    std::apply(kernel, parameters);
  };
}

const std::map<std::string, Kernel> kernels = {
    {"convolution", by_values(convolution)},
    {"convolution_weight_grad", by_values(convolution_weight_grad)},
    {"norm", by_values(norm)},
    {"norm_gradient", by_values(norm_gradient)},
    {"max_pool3d", by_values(max_pool3d)},
    {"max_pool3d_gradient", by_values(max_pool3d_gradient)},
    {"interpolate", by_values(interpolate)}};

}  // namespace

extern "C" {

/// Runs a kernel of the table, on CUDA in `stream`. A voxgrad_result among the arguments is an operand, by
/// its place in `addresses`. `operands` has for each: its vox::DType, its CUDA device or -1 for the CPU, its
/// rank and its sizes.
VoxgradStatus voxgrad_kernel(const char* name, const VoxgradArgument* arguments, int64_t count,
                             const int64_t* operands, void* const* addresses, int64_t operands_count,
                             void* stream) {
  return guarded([&] {
    std::vector<Tensor> tensors;
    for (int64_t i = 0; i < operands_count; ++i) {
      const auto dtype = static_cast<DType>(operands[0]);
      const Device on = operands[1] < 0 ? Device::cpu() : Device::cuda(static_cast<int>(operands[1]));
      const Shape shape(operands + 3, operands + 3 + operands[2]);
      operands += 3 + shape.rank();
      tensors.push_back(
          detail::from_blob(addresses[i], dtype, shape, contiguous_strides(shape), on, {}, name));
    }
    capi::Values values;
    for (int64_t i = 0; i < count; ++i) values.push_back(capi::value_of(arguments[i], tensors));
    std::optional<cuda::StreamGuard> guard;
    const Device on = tensors[0].device();
    if (on.is_cuda()) guard.emplace(cuda::Stream::borrow(stream, on));
    kernels.at(name)(values);
  });
}
}

#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/layer_kernels.h>

#include <map>
#include <string>

#include "capi/arguments.h"

// Kernels by name, on dense tensors whose memory the caller owns, their results among them: for a framework
// that plans its memory and differentiates by itself (python/voxgrad/torch/_layers.py). The caller checks the
// operands.

namespace {

using namespace vox;
using detail::NormStatistics;

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

const std::map<std::string, Kernel> kernels = {{"norm", by_values(norm)},
                                               {"norm_gradient", by_values(norm_gradient)},
                                               {"max_pool3d", by_values(max_pool3d)},
                                               {"max_pool3d_gradient", by_values(max_pool3d_gradient)},
                                               {"interpolate", by_values(interpolate)}};

}  // namespace

extern "C" {

/// Runs a kernel of the table, in `stream` of the CUDA device number `device`; on the CPU if that is -1. A
/// voxgrad_result among the arguments is an operand, by its place in `addresses`. `operands` has for each:
/// its vox::DType, its rank and its sizes.
VoxgradStatus voxgrad_kernel(const char* name, const VoxgradArgument* arguments, int64_t count,
                             const int64_t* operands, void* const* addresses, int64_t operands_count,
                             int device, void* stream) {
  return guarded([&] {
    const Device on = device < 0 ? Device::cpu() : Device::cuda(device);
    std::optional<cuda::StreamGuard> guard;
    if (on.is_cuda()) guard.emplace(cuda::Stream::borrow(stream, on));
    std::vector<Tensor> tensors;
    for (int64_t i = 0; i < operands_count; ++i) {
      const auto dtype = static_cast<DType>(operands[0]);
      const Shape shape(operands + 2, operands + 2 + operands[1]);
      operands += 2 + shape.rank();
      tensors.push_back(detail::from_blob(addresses[i], dtype, shape, contiguous_strides(shape), on, {}));
    }
    capi::Values values;
    for (int64_t i = 0; i < count; ++i) values.push_back(capi::value_of(arguments[i], tensors));
    kernels.at(name)(values);
  });
}
}

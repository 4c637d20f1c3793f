#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/ops/conv3d_recorded.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/voxgrad.h>

#include "capi/errors.h"

// The library that python/voxgrad/_library.py loads by ctypes: convolutions on memory of another framework,
// behind a plain C ABI. It knows nothing of Python, of PyTorch or of the tape. The framework allocates the
// results. All gradients are composed of the same two calls, voxgrad_convolution and voxgrad_weight_grad
// (Note [The conv3d family] in ops/conv3d.cpp).

extern "C" {

/// A dense tensor, without its memory.
struct VoxgradOperand {
  int32_t rank;    // 0: there is none (a bias)
  int32_t dtype;   // vox::DType
  int32_t device;  // -1 for the CPU, or the number of the CUDA device
  int64_t sizes[5];
};

/// A convolution, or a transposed one, of tensors with `axes` spatial dimensions.
struct VoxgradConvolution {
  int32_t axes;  // 1, 2 or 3
  int32_t transposed;
  int32_t precision;                   // vox::Float32Precision
  VoxgradOperand input, weight, bias;  // the input has rank axes + 2, or axes + 1 without a batch
  // One number per spatial dimension. The size of the result is given, because the gradient of a strided
  // convolution has the size of its input, which does not follow from the rest.
  int64_t output_size[3], stride[3], padding[3], dilation[3];
  int64_t groups;
};
}

namespace {

using namespace vox;

constexpr ByDevice conv3d_kernel{"conv3d", &cpu::conv3d, VOX_CUDA(&cuda::conv3d)};
constexpr ByDevice conv_transpose3d_kernel{"conv_transpose3d", &cpu::conv_transpose3d,
                                           VOX_CUDA(&cuda::conv_transpose3d)};
constexpr ByDevice weight_grad_kernel{"conv3d_weight_grad", &cpu::conv3d_weight_grad,
                                      VOX_CUDA(&cuda::conv3d_weight_grad)};

detail::Caller caller_of(const VoxgradConvolution& c) {
  constexpr const char* names[2][3] = {{"conv1d", "conv2d", "conv3d"},
                                       {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}};
  check<ValueError>(c.axes >= 1 && c.axes <= 3, "convolution: axes must be 1, 2 or 3, got ", c.axes);
  const detail::Caller caller(names[c.transposed != 0][c.axes - 1], c.axes, c.input.rank == c.axes + 2);
  check<ShapeError>(caller.batched || c.input.rank == c.axes + 1, caller, ": input must have ", c.axes + 2,
                    " dimensions, or ", c.axes + 1, " without a batch, got ", c.input.rank);
  check<ShapeError>(c.weight.rank == c.axes + 2, caller, ": weight must have ", c.axes + 2,
                    " dimensions, got ", c.weight.rank);
  check<ShapeError>(c.bias.rank == 0 || c.bias.rank == 1, caller, ": bias must have 1 dimension, got ",
                    c.bias.rank);
  return caller;
}

/// Sizes of a tensor with a batch, channels and three axes.
Shape lifted(const VoxgradConvolution& c, const VoxgradOperand& operand) {
  Shape shape(operand.sizes, operand.sizes + operand.rank);
  if (operand.rank == c.axes + 1) shape.insert(0, 1);
  while (shape.rank() < 5) shape.insert(2, 1);
  return shape;
}
Triple lifted(const VoxgradConvolution& c, const int64_t (&numbers)[3], int64_t added_axes) {
  Triple triple(added_axes);
  for (int axis = 0; axis < c.axes; ++axis) triple[3 - c.axes + axis] = numbers[axis];
  return triple;
}

/// The geometry of c; throws what conv3d() and conv_transpose3d() throw.
Conv3dGeometry geometry_of(const detail::Caller& caller, const VoxgradConvolution& c) {
  const Shape x = lifted(c, c.input), w = lifted(c, c.weight);
  const Triple output = lifted(c, c.output_size, 1), stride = lifted(c, c.stride, 1),
               padding = lifted(c, c.padding, 0), dilation = lifted(c, c.dilation, 1);
  const auto transposed_to = [&](const Shape& small, const Triple& big) {
    return detail::conv_transpose3d_geometry(
        caller, small, w,
        {.stride = stride, .padding = padding, .groups = c.groups, .dilation = dilation, .output_size = big});
  };
  if (c.transposed) return transposed_to(x, output);
  const Conv3dGeometry g = detail::conv3d_geometry(
      caller, x, w, {.stride = stride, .padding = padding, .dilation = dilation, .groups = c.groups});
  if (g.small == output) return g;
  // The gradient of a transposed convolution with output_padding >= stride gives fewer cells than conv3d.
  return transposed_to({x[0], w[0], output.d, output.h, output.w}, {x[2], x[3], x[4]});
}

/// The framework's memory as a dense tensor.
Tensor borrow(const detail::Caller& caller, const VoxgradOperand& operand, const Shape& shape,
              const void* data) {
  const Device device = operand.device < 0 ? Device::cpu() : Device::cuda(operand.device);
  if (device.is_cuda()) cuda::check_device(caller, device.index);
  return detail::from_blob(const_cast<void*>(data), static_cast<DType>(operand.dtype), shape,
                           contiguous_strides(shape), device, {});
}

/// The operands of c, checked.
struct Operands {
  Conv3dGeometry geometry;
  Tensor input, weight, bias;

  Operands(const detail::Caller& caller, const VoxgradConvolution& c, const void* input_data,
           const void* weight_data, const void* bias_data)
      : input(borrow(caller, c.input, lifted(c, c.input), input_data)),
        weight(borrow(caller, c.weight, lifted(c, c.weight), weight_data)) {
    if (c.bias.rank == 1) bias = borrow(caller, c.bias, {c.bias.sizes[0]}, bias_data);
    detail::check_operands(caller, "input", input, "weight", weight);
    geometry = geometry_of(caller, c);
    detail::check_bias(caller, input, bias, c.transposed ? geometry.big_channels : geometry.small_channels);
  }
  Shape output_shape(const VoxgradConvolution& c) const {
    return c.transposed ? geometry.big_shape() : geometry.small_shape();
  }
};

/// Runs f() in the framework's stream of the device.
template <class F>
void in_stream(Device device, void* stream, F f) {
  if (device.is_cpu()) return f();
  const cuda::StreamGuard guard(cuda::Stream::borrow(stream, device));
  f();
}

}  // namespace

extern "C" {

/// "major.minor.patch"
const char* voxgrad_version() { return version(); }

/// 1 if this build has CUDA kernels.
int voxgrad_has_cuda() { return VOXGRAD_HAS_CUDA; }

/// Whether voxgrad can compute c: sizes, dtypes and devices.
VoxgradStatus voxgrad_check(const VoxgradConvolution* c) {
  return guarded([&] {
    alignas(16) static const char never_read[16] = {};
    Operands(caller_of(*c), *c, never_read, never_read, never_read);
  });
}

/// Writes the result to `output`, which has the input's dtype and device.
VoxgradStatus voxgrad_convolution(const VoxgradConvolution* c, const void* input, const void* weight,
                                  const void* bias, void* output, void* stream) {
  return guarded([&] {
    const detail::Caller caller = caller_of(*c);
    const Operands on(caller, *c, input, weight, bias);
    Tensor result = borrow(caller, c->input, on.output_shape(*c), output);
    const auto& kernel = c->transposed ? conv_transpose3d_kernel : conv3d_kernel;
    in_stream(result.device(), stream, [&] {
      kernel.on(result.device(), caller)(on.input, on.weight, on.bias, result, on.geometry,
                                         static_cast<Float32Precision>(c->precision));
    });
  });
}

/// The gradients of weight and bias for `grad_output`, the gradient of the result. bias_grad may be null,
/// else c has a bias.
VoxgradStatus voxgrad_weight_grad(const VoxgradConvolution* c, const void* input, const void* grad_output,
                                  void* weight_grad, void* bias_grad, void* stream) {
  return guarded([&] {
    const detail::Caller caller = caller_of(*c);
    const Operands on(caller, *c, input, weight_grad, bias_grad);
    const Tensor grad = borrow(caller, c->input, on.output_shape(*c), grad_output);
    Tensor dweight = on.weight, dbias = on.bias;
    const auto compute = [&](const Tensor& big, const Tensor& small) {
      weight_grad_kernel.on(grad.device(), caller)(big, small, dweight, dbias,
                                                   c->transposed ? Grid::big : Grid::small, on.geometry,
                                                   static_cast<Float32Precision>(c->precision));
    };
    in_stream(grad.device(), stream, [&] {
      if (c->transposed)
        compute(grad, on.input);
      else
        compute(on.input, grad);
    });
  });
}

/// Returns the unused memory of voxgrad's pool to the GPU.
VoxgradStatus voxgrad_empty_cache(int device) {
  return guarded([&] { cuda::empty_cache(Device::cuda(device)); });
}

/// Bytes that voxgrad uses on the GPU, and bytes that it holds there, unused memory of its pool included.
VoxgradStatus voxgrad_memory(int device, int64_t* in_use, int64_t* reserved) {
  return guarded([&] {
    const cuda::MemoryStats stats = cuda::memory_stats(Device::cuda(device));
    *in_use = stats.in_use;
    *reserved = stats.reserved;
  });
}
}

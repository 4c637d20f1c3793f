#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/kernels.h>

#include <functional>

// Copies of a tensor: dense, on another device, in another dtype.

namespace vox {

using autograd::linear;

namespace {

Tensor dense_copy(const char* function, const Tensor& x) {
  Tensor y = detail::empty_for(function, x.shape(), x.options());
  detail::copy_kernel.on(x.device())(x, y);
  return y;
}

Tensor recorded_copy(const char* function, const Tensor& x) {
  return linear("clone", {x}, dense_copy(function, x), std::identity());
}

}  // namespace

Tensor Tensor::clone() const {
  checked("clone");
  return recorded_copy("clone", *this);
}

Tensor Tensor::contiguous() const {
  checked("contiguous");
  return is_contiguous() ? *this : recorded_copy("contiguous", *this);
}

Tensor Tensor::to(Device device) const {
  const Device from = checked("to").storage->device();
  if (from == device) return *this;
  const Tensor x = is_contiguous() ? *this : dense_copy("to", *this);
  Tensor y = detail::empty_for("to", shape(), {dtype(), device});
  if (numel() > 0) {
    const auto kind = from.is_cpu()     ? cuda::CopyKind::host_to_device
                      : device.is_cpu() ? cuda::CopyKind::device_to_host
                                        : cuda::CopyKind::device_to_device;
    cuda::copy(y.impl()->data(), device.index, x.impl()->data(), from.index, numel() * size_of(dtype()),
               kind);
  }
  return linear("to_device", {*this}, y, [from](const Tensor& g) { return g.to(from); });
}

Tensor Tensor::to(DType dtype) const {
  const DType from = checked("to").dtype;
  if (from == dtype) return *this;
  Tensor y = detail::empty_for("to", shape(), {dtype, device()});
  detail::copy_kernel.on(device())(*this, y);
  if (!is_floating(dtype)) return y;
  return linear("to_dtype", {*this}, y, [from](const Tensor& g) { return g.to(from); });
}

}  // namespace vox

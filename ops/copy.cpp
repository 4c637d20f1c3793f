#include <voxgrad/autograd/record.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/kernels.h>

// Copies of a tensor: dense, on another device, in another dtype.

namespace vox {

using autograd::Gradients;
using autograd::Node;
using autograd::record;

namespace {

Tensor dense_copy(const char* function, const Tensor& x) {
  Tensor y = detail::empty_for(function, x.shape(), x.options());
  detail::copy_kernel.on(x.device())(x, y);
  return y;
}

struct CloneNode final : Node {
  const char* name() const override { return "clone"; }
  Gradients backward(Gradients g) override { return {g[0]}; }
};

struct ToDeviceNode final : Node {
  const char* name() const override { return "to_device"; }
  Gradients backward(Gradients g) override { return {g[0]->to(from_)}; }
  Device from_;
};

struct ToDTypeNode final : Node {
  const char* name() const override { return "to_dtype"; }
  Gradients backward(Gradients g) override { return {g[0]->to(from_)}; }
  DType from_ = f32;
};

Tensor recorded_copy(const char* function, const Tensor& x) {
  Tensor y = dense_copy(function, x);
  record<CloneNode>({x}, y);
  return y;
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
  if (auto node = record<ToDeviceNode>({*this}, y)) node->from_ = from;
  return y;
}

Tensor Tensor::to(DType dtype) const {
  const DType from = checked("to").dtype;
  if (from == dtype) return *this;
  Tensor y = detail::empty_for("to", shape(), {dtype, device()});
  detail::copy_kernel.on(device())(*this, y);
  if (!is_floating(dtype)) return y;
  if (auto node = record<ToDTypeNode>({*this}, y)) node->from_ = from;
  return y;
}

}  // namespace vox

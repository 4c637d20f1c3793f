#include <algorithm>

#include "arguments.h"
#include "ops.h"

// The C interface to tensors and ops. A handle is a vox::Tensor on the heap, which the caller frees; an
// argument list is flat (Note [Values] in value.h).

using namespace vox;

namespace {

Tensor borrow(void* data, DType dtype, const Shape& shape) {
  return detail::from_blob(data, dtype, shape, contiguous_strides(shape), Device::cpu(), {});
}

}  // namespace

extern "C" {

VoxgradStatus voxgrad_set_num_threads(int threads) {
  return guarded([&] { set_num_threads(threads); });
}

/// A leaf with the given sizes and strides that holds a copy of `data`, host memory. Its first element lies
/// `lead` elements into its memory, so that it is no better aligned than the original.
VoxgradStatus voxgrad_tensor_make(void* data, const char* dtype_name, int64_t rank, const int64_t* sizes,
                                  const int64_t* strides, int64_t lead, const char* device_name,
                                  Tensor** result) {
  return guarded([&] {
    DType dtype;
    Device device;
    capi::read(dtype_name, dtype), capi::read(device_name, device);
    const Shape shape(sizes, sizes + rank);
    if (std::count(shape.begin(), shape.end(), 0)) {
      *result = new Tensor(empty(shape, {dtype, device}));
      return;
    }
    int64_t span = 1;
    for (int64_t i = 0; i < rank; ++i) span += (sizes[i] - 1) * strides[i];
    const Tensor memory = zeros({lead + span}, {dtype, device});
    memory.slice(0, lead, lead + span).copy_(borrow(data, dtype, {span}).to(device));
    if (device.is_cuda()) cuda::synchronize();  // `data` may be gone after this
    *result = new Tensor(detail::alias(memory, lead, shape, Shape(strides, strides + rank)));
  });
}

/// A leaf on memory of a CUDA device or, with -1, of the host, which the caller keeps as long as a tape
/// refers to it. `dtype` is a vox::DType.
VoxgradStatus voxgrad_tensor_on(void* data, int dtype, int device, int64_t rank, const int64_t* sizes,
                                const int64_t* strides, int requires_grad, Tensor** result) {
  return guarded([&] {
    Tensor t = detail::from_blob(data, static_cast<DType>(dtype), Shape(sizes, sizes + rank),
                                 Shape(strides, strides + rank),
                                 device < 0 ? Device::cpu() : Device::cuda(device), {}, "voxgrad");
    if (requires_grad) t.set_requires_grad();
    *result = new Tensor(t);
  });
}

/// `sizes` and `strides` have room for 8 numbers.
VoxgradStatus voxgrad_tensor_describe(const Tensor* t, const char** dtype, int64_t* rank, int64_t* sizes,
                                      int64_t* strides, int* requires_grad) {
  return guarded([&] {
    *dtype = to_string(t->dtype());
    *rank = t->rank();
    std::copy(t->shape().begin(), t->shape().end(), sizes);
    std::copy(t->strides().begin(), t->strides().end(), strides);
    *requires_grad = t->requires_grad();
  });
}

/// Copies the elements in row-major order to `data` in host memory.
VoxgradStatus voxgrad_tensor_read(const Tensor* t, void* data) {
  return guarded([&] { borrow(data, t->dtype(), t->shape()).copy_(t->detach().to(Device::cpu())); });
}

VoxgradStatus voxgrad_tensor_require_grad(Tensor* t) {
  return guarded([&] { t->set_requires_grad(); });
}

void voxgrad_tensor_free(Tensor* t) { delete t; }

/// Calls an op of capi/ops.h; `results` has room for `*count` handles and gets as many as the op returns.
VoxgradStatus voxgrad_call(const char* name, const VoxgradArgument* arguments, int64_t arguments_count,
                           Tensor** results, int64_t* count) {
  return guarded([&] {
    const auto op = capi::ops().find(name);
    check<ValueError>(op != capi::ops().end(), "voxgrad_call: there is no op ", name);
    capi::Values values;
    for (int64_t i = 0; i < arguments_count; ++i) values.push_back(capi::value_of(arguments[i]));
    const std::vector<Tensor> found = op->second(values);
    check<ValueError>(std::ssize(found) <= *count, name, ": there are ", found.size(),
                      " results, with room for ", *count);
    *count = std::ssize(found);
    for (const Tensor& t : found) *results++ = new Tensor(t);
  });
}

/// vox::grad with allow_unused; null for an input that no output depends on.
VoxgradStatus voxgrad_grad(Tensor* const* outputs, Tensor* const* grad_outputs, int64_t outputs_count,
                           Tensor* const* inputs, int64_t inputs_count, int create_graph, int retain_graph,
                           Tensor** results) {
  return guarded([&] {
    const std::vector<Tensor> gradients =
        grad(capi::tensors_of(outputs, outputs_count), capi::tensors_of(inputs, inputs_count),
             {.grad_outputs = capi::tensors_of(grad_outputs, outputs_count),
              .retain_graph = retain_graph != 0,
              .create_graph = create_graph != 0,
              .allow_unused = true});
    for (const Tensor& g : gradients) *results++ = g.defined() ? new Tensor(g) : nullptr;
  });
}
}

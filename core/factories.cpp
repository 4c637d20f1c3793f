#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/new_tensor.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace vox {

namespace detail {

Tensor from_host(const void* values, int64_t count, const Shape& shape, TensorOptions options) {
  const int64_t numel = checked_numel("from_vector", shape);
  check<ShapeError>(numel == count, "from_vector: shape ", shape, " has ", numel, " elements, got ", count,
                    " values");
  const Tensor t = empty_for("from_vector", shape, options);
  const int64_t bytes = numel * size_of(options.dtype);
  if (bytes == 0) return t;
  if (options.device.is_cuda())
    cuda::copy(t.impl()->data(), options.device.index, values, 0, bytes, cuda::CopyKind::host_to_device);
  else
    std::memcpy(t.impl()->data(), values, static_cast<size_t>(bytes));
  return t;
}

Tensor from_host(const std::vector<bool>& values, const Shape& shape, Device device) {
  // vector<bool> packs its elements into bits.
  const auto bytes = std::make_unique<bool[]>(values.size());
  std::copy(values.begin(), values.end(), bytes.get());
  return from_host(bytes.get(), static_cast<int64_t>(values.size()), shape, {boolean, device});
}

}  // namespace detail

// ---- Constants ------------------------------------------------------------------------------------------

namespace {
Tensor filled(const char* function, const Shape& shape, Scalar value, TensorOptions options) {
  detail::check_scalar(function, value, options.dtype);
  Tensor t = detail::empty_for(function, shape, options);
  return t.fill_(value);
}
}  // namespace

Tensor full(const Shape& shape, Element value, TensorOptions options) {
  return filled("full", shape, value, options);
}
Tensor zeros(const Shape& shape, TensorOptions options) { return filled("zeros", shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return filled("ones", shape, 1, options); }

namespace {
Tensor filled_like(const char* function, const Tensor& t, Scalar value) {
  detail::check_defined(function, "t", t);
  return filled(function, t.shape(), value, t.options());
}
}  // namespace

Tensor full_like(const Tensor& t, Element value) { return filled_like("full_like", t, value); }
Tensor zeros_like(const Tensor& t) { return filled_like("zeros_like", t, 0); }
Tensor ones_like(const Tensor& t) { return filled_like("ones_like", t, 1); }

}  // namespace vox

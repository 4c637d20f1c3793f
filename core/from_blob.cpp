#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/factories.h>

#include <algorithm>

namespace vox::detail {

Tensor from_blob(void* data, DType dtype, const Shape& shape, const Shape& strides, Device device,
                 std::function<void(void*)> deleter, const char* function, bool read_only) {
  const int64_t numel = checked_numel(function, shape);
  check<ShapeError>(shape.rank() == strides.rank(), function, ": needs one stride per dimension, got shape ",
                    shape, " and strides ", strides);
  check<ShapeError>(std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride >= 0; }),
                    function, ": strides must be >= 0, got ", strides);
  check<ValueError>(data != nullptr || numel == 0, function, ": the pointer is null, but shape ", shape,
                    " has ", numel, " elements");
  check<ValueError>(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size_of(dtype)) == 0, function,
                    ": the pointer is not aligned to the ", size_of(dtype), " bytes of ", dtype);
  if (device.is_cuda()) cuda::check_device(function, device.index);

  int64_t last = 0;  // index of the element that lies farthest from `data`
  for (int64_t i = 0; i < shape.rank() && numel > 0; ++i)
    last = checked_add(function, last, checked_mul(function, shape[i] - 1, strides[i]));
  const int64_t extent = numel > 0 ? checked_add(function, last, 1) : 0;
  const int64_t bytes = checked_mul(function, extent, size_of(dtype));
  auto storage = Storage::adopt(data, bytes, device, std::move(deleter), read_only);
  // Without elements the strides went unchecked, and could overflow in later views.
  const Shape steps = numel > 0 ? strides : contiguous_strides(shape);
  return Tensor(std::make_shared<TensorImpl>(std::move(storage), 0, shape, steps, dtype));
}

}  // namespace vox::detail

#include <voxgrad/core/allocator.h>
#include <voxgrad/core/check.h>
#include <voxgrad/core/cuda_memory.h>

#include <new>

// Memory from the C++ library, and no GPU.

namespace vox {

void* detail::allocate(int64_t bytes, Device) {
  void* const data = ::operator new(static_cast<size_t>(bytes), std::align_val_t(64), std::nothrow);
  check<OutOfMemoryError>(data != nullptr, "allocate: cannot allocate ", bytes, " bytes on the CPU");
  return data;
}

void detail::deallocate(void* data, int64_t, Device) noexcept {
  ::operator delete(data, std::align_val_t(64));
}

namespace cuda {

void check_device(const char* function, int) {
  throw DeviceError(str(function, ": voxgrad_afternoon has no CUDA; use Device::cpu()"));
}
void copy(void*, int, const void*, int, int64_t, CopyKind) { check_device("copy", 0); }

}  // namespace cuda
}  // namespace vox

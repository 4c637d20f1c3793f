#include <voxgrad/core/allocator.h>
#include <voxgrad/core/check.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/host_memory.h>

namespace vox::detail {

void* allocate(int64_t bytes, Device device) {
  if (device.is_cuda()) return cuda::allocate(bytes, device.index);
  // Sizes that no process can address are refused here: a sanitizer would end the program over them.
  constexpr int64_t address_space = int64_t{1} << 47;
  void* data = bytes < address_space ? allocate_host(bytes) : nullptr;
  check<OutOfMemoryError>(data != nullptr, "allocate: cannot allocate ", bytes, " bytes on the CPU");
  return data;
}

void deallocate(void* data, int64_t bytes, Device device) noexcept {
  if (device.is_cuda())
    cuda::deallocate(data, device.index);
  else
    deallocate_host(data, bytes);
}

}  // namespace vox::detail

#include <voxgrad/core/allocator.h>
#include <voxgrad/core/check.h>
#include <voxgrad/core/cuda_memory.h>

#include <new>

namespace vox::detail {

namespace {
// One cache line, and the widest vector register that a CPU kernel may load from.
constexpr std::align_val_t alignment{64};
}  // namespace

void* allocate(int64_t bytes, Device device) {
  if (device.is_cuda()) return cuda::allocate(bytes, device.index);
  // Sizes that no process can address are not even asked for: sanitizers end the program over them.
  constexpr int64_t address_space = int64_t{1} << 47;
  void* data =
      bytes < address_space ? ::operator new(static_cast<size_t>(bytes), alignment, std::nothrow) : nullptr;
  check<OutOfMemoryError>(data != nullptr, "allocate: the CPU has no ", bytes, " bytes to give");
  return data;
}

void deallocate(void* data, Device device) noexcept {
  if (device.is_cuda())
    cuda::deallocate(data, device.index);
  else
    ::operator delete(data, alignment);
}

}  // namespace vox::detail

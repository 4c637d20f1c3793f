#include <voxgrad/core/allocator.h>
#include <voxgrad/core/check.h>
#include <voxgrad/core/cuda.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/host_memory.h>
#include <voxgrad/core/memory.h>

#include <atomic>

namespace vox {

namespace {

std::atomic<int64_t> in_use{0}, peak_in_use{0}, peak_reserved{0};  // of the CPU

void raise(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak;
  while (seen < value && !peak.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

MemoryStats memory_stats(Device device) {
  if (device.is_cuda()) return cuda::memory_stats(device);
  return {in_use, peak_in_use, in_use + detail::idle_host_bytes(), peak_reserved};
}

void reset_peak_memory_stats(Device device) {
  if (device.is_cuda()) return cuda::reset_peak_memory_stats(device);
  peak_in_use = in_use.load();
  peak_reserved = in_use + detail::idle_host_bytes();
}

namespace detail {

void* allocate(int64_t bytes, Device device) {
  if (device.is_cuda()) return cuda::allocate(bytes, device.index);
  // Sizes that no process can address are refused here: a sanitizer would end the program over them.
  constexpr int64_t address_space = int64_t{1} << 47;
  void* data = bytes < address_space ? allocate_host(bytes) : nullptr;
  check<OutOfMemoryError>(data != nullptr, "allocate: cannot allocate ", bytes, " bytes on the CPU");
  raise(peak_in_use, in_use += bytes);
  raise(peak_reserved, in_use + idle_host_bytes());
  return data;
}

void deallocate(void* data, int64_t bytes, Device device) noexcept {
  if (device.is_cuda()) return cuda::deallocate(data, device.index);
  deallocate_host(data, bytes);
  in_use -= bytes;
}

}  // namespace detail
}  // namespace vox

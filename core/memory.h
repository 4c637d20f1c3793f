#pragma once

#include <cstdint>

#include <voxgrad/core/device.h>

namespace vox {

/// Bytes of memory on one device. `in_use` is what tensors asked for. `reserved` also counts memory kept for
/// reuse: by the pool on a GPU, in free blocks on the CPU. On a GPU it excludes the memory of captured
/// graphs, which counts in `in_use` only.
struct MemoryStats {
  int64_t in_use = 0;
  int64_t peak_in_use = 0;
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
};
MemoryStats memory_stats(Device device = Device::cpu());

/// Resets the peaks to the present numbers.
void reset_peak_memory_stats(Device device = Device::cpu());

}  // namespace vox

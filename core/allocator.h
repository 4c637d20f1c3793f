#pragma once

#include <cstdint>

#include <voxgrad/core/device.h>

namespace vox::detail {

/// Raw memory for `bytes` > 0 on `device`: 64-byte aligned on the CPU, ordered on the current stream on CUDA.
void* allocate(int64_t bytes, Device device);

/// Frees memory that allocate(bytes, device) returned. Never throws.
void deallocate(void* data, int64_t bytes, Device device) noexcept;

}  // namespace vox::detail

#pragma once

#include <cstdint>

#include <voxgrad/core/device.h>

namespace vox::detail {

/// Raw memory for `bytes` > 0 on `device`. CPU: 64-byte aligned. CUDA: ordered on the current stream.
void* allocate(int64_t bytes, Device device);

/// Gives memory of allocate(bytes, device) back. Never throws.
void deallocate(void* data, int64_t bytes, Device device) noexcept;

}  // namespace vox::detail

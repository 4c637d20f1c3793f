#pragma once

#include <cstdint>

// Copies from global to shared memory that pass no register, sm_80 and later.

namespace vox::cuda::ptx {

/// Starts to copy 16 bytes, both addresses multiples of 16.
__device__ __forceinline__ void cp_async_16(void* to_shared, const void* from_global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(to_shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from_global) : "memory");
}

/// Waits for all copies that this thread has started. Others see them after a barrier.
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace vox::cuda::ptx

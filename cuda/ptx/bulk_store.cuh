#pragma once

#include <cstdint>

// Copies from shared to global memory that the copy engine makes, sm_90 and later. PTX ISA, "cp.async.bulk".

namespace vox::cuda::ptx {

/// Starts to copy `bytes` from shared to global memory; addresses and size are multiples of 16. What ordinary
/// stores wrote there is seen after fence_proxy_async() in each thread that wrote and a barrier.
__device__ __forceinline__ void bulk_store(void* to_global, const void* from_shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to_global),
               "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from_shared))), "r"(bytes)
               : "memory");
}

/// Closes a group of the copies that this thread has started.
__device__ __forceinline__ void bulk_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until all groups of this thread have read shared memory, so that it may be written again.
__device__ __forceinline__ void bulk_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace vox::cuda::ptx

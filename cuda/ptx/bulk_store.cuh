#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/shared.cuh>

// Copies from shared to global memory by the copy engine, without registers. sm_90 and later. PTX ISA,
// "cp.async.bulk".
//
//   fence_proxy_async();        // each thread that stored to shared memory, then a barrier
//   bulk_store(...);            // as many as one likes, by any thread
//   bulk_store_commit();        // closes a group of this thread's
//   bulk_store_wait_read(1);    // at most so many groups of this thread's still read; then a barrier, and
//                               // others may write what the groups before have read

namespace vox::cuda::ptx {

/// Starts to copy `bytes`; addresses and size are multiples of 16.
__device__ __forceinline__ void bulk_store(void* to_global, const void* from_shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to_global),
               "r"(shared_address_of(from_shared)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void bulk_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

namespace detail {
template <int groups>
__device__ __forceinline__ void bulk_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}
}  // namespace detail

/// The instruction wants a constant: at most 0, 1, 2, 4 or 6 groups.
__device__ __forceinline__ void bulk_store_wait_read(int groups) {
  if (groups == 0)
    detail::bulk_store_wait_read<0>();
  else if (groups == 1)
    detail::bulk_store_wait_read<1>();
  else if (groups < 4)
    detail::bulk_store_wait_read<2>();
  else if (groups < 6)
    detail::bulk_store_wait_read<4>();
  else
    detail::bulk_store_wait_read<6>();
}

/// All copies of this thread's are done, and can be seen.
__device__ __forceinline__ void bulk_store_wait_all() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace vox::cuda::ptx

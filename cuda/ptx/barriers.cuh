#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/shared.cuh>

// Barriers among the warps of a block: named barriers, where all threads wait, and mbarriers, where some
// threads arrive and others wait.

namespace vox::cuda::ptx {

// ---- Named barriers ---------------------------------------------------------------------------------------

/// A __syncthreads of `threads` threads, a multiple of 32: those that name the same `barrier`, 1 to 15.
template <int threads>
__device__ __forceinline__ void named_barrier(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

/// The same for a barrier number that is known at compile time.
template <int threads, int barrier>
__device__ __forceinline__ void named_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(barrier), "n"(threads) : "memory");
}

// ---- Mbarriers --------------------------------------------------------------------------------------------

// Barriers in shared memory that count arrivals and bytes. sm_90 and later. PTX ISA, "mbarrier".
//
// A barrier runs through phases. A phase ends when as many threads have arrived as the barrier was
// initialised for, and all announced bytes have come. The first phase has parity 0, the next 1, then 0 again.

using Mbarrier = uint64_t;

/// Initialises a barrier for so many arrivals. One thread does it and then calls mbarrier_init_done; after
/// that all threads call __syncthreads.
__device__ __forceinline__ void mbarrier_init(Mbarrier& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address_of(&barrier)), "r"(arrivals)
               : "memory");
}

/// Makes initialised barriers visible to TMA.
__device__ __forceinline__ void mbarrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address_of(&barrier)) : "memory");
}

/// Arrives, and announces the bytes that bulk copies will load in this phase.
__device__ __forceinline__ void mbarrier_arrive_expecting(Mbarrier& barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address_of(&barrier)),
               "r"(bytes)
               : "memory");
}

/// Waits until the phase of this parity is over, and returns at once if the barrier is already in the next
/// one. So a wait for parity 1 on a new barrier does not wait.
__device__ __forceinline__ void mbarrier_wait(Mbarrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait;\n}" ::"r"(shared_address_of(&barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace vox::cuda::ptx

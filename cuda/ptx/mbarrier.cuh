#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/shared.cuh>

// Barriers in shared memory that count arrivals and bytes, and the copies that report to them. sm_90 and
// later. PTX ISA, "mbarrier" and "cp.async.bulk".
//
// A barrier runs through phases. A phase ends when as many threads have arrived as the barrier was made for,
// and all bytes that were announced have come. Its first phase has parity 0, the next 1, then 0 again.

namespace vox::cuda::ptx {

using Mbarrier = uint64_t;

/// Makes a barrier for so many arrivals. One thread does it, then calls mbarrier_init_done, then all of them
/// __syncthreads.
__device__ __forceinline__ void mbarrier_init(Mbarrier& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address_of(&barrier)), "r"(arrivals)
               : "memory");
}

/// Makes the new barriers known to the copy engine.
__device__ __forceinline__ void mbarrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address_of(&barrier)) : "memory");
}

/// Arrives, and announces bytes that bulk copies are to bring in this phase.
__device__ __forceinline__ void mbarrier_arrive_expecting(Mbarrier& barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address_of(&barrier)),
               "r"(bytes)
               : "memory");
}

/// Waits until the phase of this parity is over: returns at once if the barrier is already in the next one.
/// So a wait for parity 1 on a new barrier does not wait.
__device__ __forceinline__ void mbarrier_wait(Mbarrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait;\n}" ::"r"(shared_address_of(&barrier)),
      "r"(parity)
      : "memory");
}

/// Starts to copy `bytes` from global to shared memory, without registers or further instructions; addresses
/// and size are multiples of 16. The barrier counts the bytes that have come. One thread calls it.
__device__ __forceinline__ void bulk_copy(void* to_shared, const void* from_global, uint32_t bytes,
                                          Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address_of(to_shared)),
      "l"(from_global), "r"(bytes), "r"(shared_address_of(&barrier))
      : "memory");
}

}  // namespace vox::cuda::ptx

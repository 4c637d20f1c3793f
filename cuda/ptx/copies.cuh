#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>

// Asynchronous copies between global and shared memory: the thread that starts one goes on. PTX ISA,
// "cp.async" and "cp.async.bulk".

namespace vox::cuda::ptx {

// ---- 16 bytes to shared memory, sm_80 and later -----------------------------------------------------------

/// Starts to copy 16 bytes, or 16 zeros if the source does not exist; `from_global` is an address of global
/// memory in any case. Both addresses are multiples of 16.
__device__ __forceinline__ void cp_async_16_or_zeros(uint32_t to_shared, const void* from_global,
                                                     bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from_global),
               "r"(exists ? 16 : 0)
               : "memory");
}

/// The same for 4 bytes, at multiples of 4.
__device__ __forceinline__ void cp_async_4_or_zeros(uint32_t to_shared, const void* from_global,
                                                    bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to_shared), "l"(from_global),
               "r"(exists ? 4 : 0)
               : "memory");
}

/// cp_async_16_or_zeros() if the condition holds, without a branch.
__device__ __forceinline__ void cp_async_16_if(bool condition, uint32_t to_shared, const void* from_global,
                                               bool exists) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\n@p cp.async.cg.shared.global [%0], [%1], 16, %2;\n}" ::"r"(
          to_shared),
      "l"(from_global), "r"(exists ? 16 : 0), "r"(int{condition})
      : "memory");
}

/// Waits for all copies that this thread has started. Other threads see them after a barrier.
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- Any number of bytes, by TMA, sm_90 and later ---------------------------------------------

/// Starts to copy `bytes` from global to shared memory, without registers or further instructions. Addresses
/// and size are multiples of 16. The barrier counts the bytes that arrive. One thread calls it.
__device__ __forceinline__ void bulk_copy(void* to_shared, const void* from_global, uint32_t bytes,
                                          Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address_of(to_shared)),
      "l"(from_global), "r"(bytes), "r"(shared_address_of(&barrier))
      : "memory");
}

}  // namespace vox::cuda::ptx

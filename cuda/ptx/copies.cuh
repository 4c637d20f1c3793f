#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>

// Asynchronous copies between global and shared memory: the thread that starts one goes on. PTX ISA,
// "cp.async" and "cp.async.bulk".

namespace vox::cuda::ptx {

// ---- 16 bytes to shared memory, sm_80 and later -----------------------------------------------------------

/// Starts to copy 16 bytes; both addresses are multiples of 16.
__device__ __forceinline__ void cp_async_16(void* to_shared, const void* from_global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(to_shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from_global) : "memory");
}

/// The same, or 16 zeros if the source does not exist; `from_global` is an address of global memory in any
/// case.
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

/// cp.async of 16 bytes, or of 16 zeros if the source does not exist, if the condition holds. Without a
/// branch. `from_global` is an address of global memory in any case.
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

// From shared to global memory:
//
//   fence_proxy_async();        // in each thread that stored to shared memory; then a barrier
//   bulk_store(...);            // any number of them, by any thread
//   bulk_store_commit();        // closes a group of this thread
//   bulk_store_wait_read(1);    // at most so many groups of this thread still read; after a barrier, other
//                               // threads may overwrite what the earlier groups have read

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

/// At most 0, 1, 2, 4 or 6 groups: the instruction takes a constant.
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

/// Waits until all copies of this thread are done and visible.
__device__ __forceinline__ void bulk_store_wait_all() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace vox::cuda::ptx

#pragma once

#include <cstdint>

// Clusters: blocks that run at the same time and read each other's shared memory. sm_90 and later. PTX ISA,
// "barrier.cluster" and "mapa".

namespace vox::cuda::ptx {

/// A __syncthreads of all threads of the cluster.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// The address, in the shared memory of the cluster, of what block `rank` has at `shared_address`.
__device__ __forceinline__ uint32_t address_in_cluster(uint32_t shared_address, int rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
}

__device__ __forceinline__ void load_of_cluster(float& x, uint32_t address) {
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address));
}
/// Four numbers from a multiple of 16 bytes.
__device__ __forceinline__ void load_of_cluster(float (&x)[4], uint32_t address) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(address));
}

}  // namespace vox::cuda::ptx

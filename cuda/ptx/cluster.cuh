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

__device__ __forceinline__ float load_of_cluster(uint32_t address) {
  float x;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address));
  return x;
}

}  // namespace vox::cuda::ptx

#pragma once

namespace vox::cuda::ptx {

/// The number of the thread in its warp, read anew: the compiler does not compute what depends on it earlier.
__device__ __forceinline__ int lane_here() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

}  // namespace vox::cuda::ptx

#pragma once

namespace vox::cuda::ptx {

/// The number of the thread in its warp, read anew: the compiler does not compute what depends on it earlier.
__device__ __forceinline__ int lane_here() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
/// The same number, of which the compiler does not know where it comes from.
__device__ __forceinline__ float opaque(float x) {
  float same;
  asm volatile("mov.b32 %0, %1;" : "=f"(same) : "f"(x));
  return same;
}

}  // namespace vox::cuda::ptx

#pragma once

namespace vox::cuda::ptx {

/// A __syncthreads of `threads` threads, a multiple of 32: all that name the same `barrier`, 1 to 15.
template <int threads>
__device__ __forceinline__ void named_barrier(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

/// The same of a barrier that the compiler knows.
template <int threads, int barrier>
__device__ __forceinline__ void named_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(barrier), "n"(threads) : "memory");
}

}  // namespace vox::cuda::ptx

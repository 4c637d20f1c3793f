#pragma once

#include <voxgrad/cuda/runtime/launch.h>

#include <cstdint>

namespace vox::cuda {

/// This thread's share of 0 <= i < n in a grid-stride loop: its first index, and the stride to the next.
__device__ inline int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t index_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

template <class F>
__global__ void for_each_index_kernel(int64_t n, F f) {
  for (int64_t i = first_index(); i < n; i += index_step()) f(i);
}

/// Calls `f(i)` on the GPU for every 0 <= i < n, in no order: the launcher of an elementwise kernel.
/// `f` is a __device__ lambda or a functor, captured by value.
template <class F>
void for_each_index(const Launch& launch, int64_t n, F f) {
  if (n == 0) return;
  // 256 threads give full occupancy for up to 32 registers a thread on every GPU since Volta, and blocks are
  // small enough that a small tensor still spreads over the chip.
  constexpr int block = 256;
  for_each_index_kernel<<<grid_for(n, block), block, 0, launch.stream()>>>(n, f);
  launch.check();
}

}  // namespace vox::cuda

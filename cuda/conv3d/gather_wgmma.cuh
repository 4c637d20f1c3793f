#pragma once

// conv3d with strides on Hopper's tensor cores (wgmma), f32 by TF32, from rows as they are.

#include <voxgrad/cuda/conv3d/gather_wgmma_load.cuh>
#include <voxgrad/cuda/conv3d/gather_wgmma_products.cuh>

namespace vox::cuda::gather {

template <class Block>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const float* __restrict__ input, const unsigned char* __restrict__ packed,
                   const float* __restrict__ bias, float* __restrict__ output, int64_t* not_split,
                   const __grid_constant__ GatherPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ ptx::Mbarrier full[most_stages], empty[most_stages];
  const Shared shared{memory, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], copying_lanes);
      ptx::mbarrier_init(empty[i], consumer_threads);
    }
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  const Columns columns{static_cast<int>(blockIdx.y) / p.channel_blocks,
                        static_cast<int>(blockIdx.y) % p.channel_blocks};
  // From lane 0, so that the compiler knows that warps do not part here.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup == gather_warpgroups) {
    ptx::shrink_registers_to<loader_registers>();
    if (threadIdx.x / 32 % 4 == 0) load<Block>(input, packed, columns, shared, p);
  } else {
    ptx::grow_registers_to<consumer_registers>();
    Products<Block> products;
    products.consume(input, columns, shared, warpgroup, bias, output, not_split, p);
  }
#endif
}

}  // namespace vox::cuda::gather

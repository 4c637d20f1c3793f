#pragma once

// strided_wgmma.cuh of f32 as a sum of two f16 numbers, scaled by powers of two: as accurate as f32
// arithmetic. The arithmetic is that of implicit_gemm_wgmma_f16x3.cuh, and so are what it promises and what
// leaves a mark (implicit_gemm_wgmma_f16x3.cu), M(x) being the largest value in the same window and the same
// 8 channels.
//
// A stage is 8 channels of a window: [high | low][depth][position][16 bytes], as many bytes as TF32 takes,
// and a power of two for all of it, since every shift reads it. The weights of an item are [low' | high' /
// 2^11 | high'][channel][16 bytes], each channel with a power of two of its own; the weights of a stage end
// with zeros, for the partner of an odd last tap. A block tries the scale of its stage before: so the last
// bits of values far below the largest of their stage may depend on which tiles a block has, that is on the
// batch and the number of multiprocessors, though never on the run. Sums of a stage, in its units, begin anew
// for each phase, and move to f32 totals before they hold too many taps.

#include <voxgrad/cuda/conv3d/strided_wgmma_f16x3_input.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_f16x3_products.cuh>

namespace vox::cuda::strided {

/// The items of `p` are instructions here: what they add to the lower halves of the two matrices, which is
/// the address and, from bit 16, the distance of the two granules of k, in units of 16 bytes.
template <class Block>
__global__ void __launch_bounds__(block_threads, 1)
    scaled_product_kernel(const float* __restrict__ input, const unsigned char* __restrict__ packed,
                          const float* __restrict__ column_unscale, const float* __restrict__ bias,
                          float* __restrict__ output, const __grid_constant__ StridedPlan p,
                          const __grid_constant__ MostInSum most_in_sum, int64_t* not_split) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ ptx::Mbarrier full[most_stages], empty[most_stages], weights_here;
  __shared__ float unscale[most_stages];
  __shared__ LargestValues largest[2];
  ScaledShared shared{
      {memory, nullptr, nullptr, nullptr, nullptr, full, empty, &weights_here}, unscale, nullptr, largest};
  shared.weights = shared.stages + p.stages * p.stage_bytes;
  shared.table = reinterpret_cast<uint32_t*>(shared.weights + p.weight_bytes);
  shared.staging = shared.weights + p.weight_bytes + p.table_bytes;
  shared.bias = reinterpret_cast<float*>(shared.staging + 2 * p.staging_bytes);
  shared.column_unscale = shared.bias + Block::channels + 8;
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], producers + (p.weight_bytes ? 0 : 1));
      ptx::mbarrier_init(empty[i], consumer_threads);
    }
    ptx::mbarrier_init(weights_here, 1);
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  const Columns columns{static_cast<int>(blockIdx.y) / p.channel_blocks,
                        static_cast<int>(blockIdx.y) % p.channel_blocks};
  // From lane 0, so that the compiler knows that warps do not part here.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup >= 2) {
    ptx::shrink_registers_to<Block::producer_registers>();
    produce_scaled<Block>(input, packed, columns, shared, warpgroup - 2, p, not_split);
  } else {
    ptx::grow_registers_to<Block::consumer_registers>();
    ScaledProducts<Block>::consume(columns, shared, warpgroup, bias, column_unscale, output, most_in_sum, p);
  }
#endif
}

}  // namespace vox::cuda::strided

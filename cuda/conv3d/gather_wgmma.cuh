#pragma once

// conv3d on Hopper's tensor cores (wgmma) from rows as they are: f32 by TF32, or split in two TF32 numbers.
// conv_transpose3d with steps of 1 is the same with the taps in reverse (gather_plan.cpp).
//
//   output[m, n] = bias[n] + sum over k, taps  input[k, m * stride - padding + tap] * weight[k, n, tap]
//   m: a cell of the output     n: an output channel of the group     k: an input channel
//
// The first operand of a wgmma may come from registers. So nobody puts the input in order: the rows that a
// tile of cells reads are one contiguous piece of each channel's plane, which the copy engine brings as it
// is, and each lane gathers its cells, one 4-byte load for a cell and channel, at whatever step and shift.
// There is no halo of zeros either: a lane knows which of its taps are outside, and does not load them.
//
// Who owns what: a block works on jobs, a tile of 2 x `tiles` x 64 cells of a plane of one image and a part
// of the output's depths, times `channels`. It marches through the planes of the input. A plane serves
// several depths (kernel 3 with a step of 2: one, two, one, two ...), whose sums are kept in `slots`: a depth
// has slot depth % slots, which is stored when its last plane is done with, and begins anew. A gathered
// fragment is multiplied for all depths that the plane serves. Two warpgroups gather, multiply and store;
// lanes of one warp start copies into a ring of stages: 8 channels of a plane's rows, and the weights of all
// its taps, a lane for each channel and each slot. Nothing is shared between blocks: no atomics, and the bits
// never change.
//
// Split: high and low parts are made from what was gathered; three products of four. The tensor cores
// truncate when they add, so their sums move to f32 registers after `chunk` taps.
//
// Non-finite values: below `highest` as implicit_gemm_mma.cuh says; split, a result that is not finite leaves
// a mark (gather_wgmma_split.cu).
//
// What holds it back: README.md.

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
  __shared__ ptx::Mbarrier full[most_gather_stages], empty[most_gather_stages];
  const Shared shared{memory, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], Block::copying_lanes);
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

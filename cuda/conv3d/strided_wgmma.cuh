#pragma once

// conv3d with steps of 1 to 4 and conv_transpose3d with steps of 1 and 2 on Hopper's tensor cores (wgmma):
// f32 by TF32 or bf16, and tensors of 16 bits.
//
// Seen from the coarse grid every tap is a shift by whole cells and one of the phases of the fine grid
// (strided_plan.h). So both ops are sums of plain products
//
//   conv_transpose3d   output[phase][m, n] = bias[n] + sum over k, shifts  input[m + shift, k] * weight[k, n]
//   conv3d             output[m, n] = bias[n] + sum over k, phases, shifts  input[phase][m + shift, k] * ...
//   m: a coarse cell     n: an output channel of the group     k: an input channel
//
// and a block loads what its tile of cells reads, with its halo, once for all of them. Phases without taps
// are written with the bias: every output is written once, and no product with an inserted zero is computed.
//
// Who owns what: a block works on tiles of 2 x `tiles` x 64 cells of one image, times `slots` phases times
// `channels`, in the registers of two warpgroups of consumers. Two groups of producers fill stages in turn: 8
// channels, or 16 where operands have 16 bits (times k_steps), of the window, rounded, as [granule of 16
// bytes of channels][depth][position]. That is an operand of wgmma without swizzle, in which every shift is a
// start address; conv3d's phases along w are planes of their own, read in one pass so that loads
// coalesce. Products may read a few positions behind a window, for cells whose results are not stored or that
// are multiplied by zero there (strided_plan.cpp). Weights come packed in the order of their use, once for
// all tiles if they fit, else with each stage. Sums go to global memory as rows in which both phases along w
// lie one behind the other, or, where one phase is alive among others without taps, as runs of sums and bias
// by the copy engine. 32 channels of both phases are the rows of an instruction, and cells its columns
// (StridedForm::wide): then a thread's sums lie as they do in the output, and leave registers 16 bytes at a
// time. Nothing is shared between blocks: no atomics, and the bits never change.
//
// Non-finite values: as implicit_gemm_mma.cuh says; wide, strided_wgmma_mend.cuh.
//
// What holds it back: README.md.

#include <voxgrad/cuda/conv3d/strided_wgmma_input.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_products.cuh>

namespace vox::cuda::strided {

template <class Block>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const __grid_constant__ Operands<Block> from, const unsigned char* __restrict__ packed,
                   typename Block::Storage* __restrict__ output, const __grid_constant__ StridedPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ ptx::Mbarrier full[most_stages], empty[most_stages], weights_here;
  Shared shared{memory, nullptr, nullptr, nullptr, nullptr, full, empty, &weights_here};
  shared.weights = shared.stages + p.stages * p.stage_bytes;
  shared.table = reinterpret_cast<uint32_t*>(shared.weights + p.weight_bytes);
  shared.staging = shared.weights + p.weight_bytes + p.table_bytes;
  shared.bias = reinterpret_cast<float*>(shared.staging + 2 * p.staging_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], producers + (p.weight_bytes ? 0 : 1));
      ptx::mbarrier_init(empty[i], consumer_threads);
    }
    ptx::mbarrier_init(weights_here, 1);
    ptx::mbarrier_init_done();
  }
  if constexpr (Block::trims)
    for (int i = threadIdx.x; i < p.stages * p.zero_bytes / 4; i += block_threads) {
      const int stage = i / (p.zero_bytes / 4), word = i % (p.zero_bytes / 4);
      reinterpret_cast<uint32_t*>(shared.stages + stage * p.stage_bytes + p.window_bytes)[word] = 0;
    }
  __syncthreads();
  const Columns columns{static_cast<int>(blockIdx.y) / p.channel_blocks,
                        static_cast<int>(blockIdx.y) % p.channel_blocks};
  // From lane 0, so that the compiler knows that warps do not part here.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup >= 2) {
    if constexpr (Block::producer_registers < 128) ptx::shrink_registers_to<Block::producer_registers>();
    produce<Block>(from.input, packed, columns, shared, warpgroup - 2, p);
  } else {
    if constexpr (Block::consumer_registers > 128) ptx::grow_registers_to<Block::consumer_registers>();
    Products<Block>::consume(columns, shared, warpgroup, from, output, p);
  }
#endif
}

}  // namespace vox::cuda::strided

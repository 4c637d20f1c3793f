#pragma once

// The Hopper rung of conv3d and conv_transpose3d where cells step by one: the flat product (flat_product.h)
// by wgmma.
//
// Who owns what: a block of 16 warps is persistent and takes one job after the other, a tile of 256 flat
// positions x `depths` outputs along d x `channels`. Warps 0 to 7, two warpgroups, multiply: each owns 128 of
// the positions, its sums in registers. Warps 8 to 14 bring the input and warp 15 the weights, through two
// rings of shared memory with a pair of mbarriers (full, empty) to a slot. So loads, conversions and stores
// of later planes run while the tensor cores work, also across jobs.
//
// Input plane: [granule][position of the window][16 bytes], a granule being 4 channels of TF32 (8 of 16
// bits). That is a K-major operand of wgmma without swizzle, and stays one when it starts at any other
// position: every tap is the same plane, shifted. Producer lanes stand for positions, so that loads from
// NCDHW coalesce and the 16-byte stores are free of bank conflicts; values are rounded once. Tensors of 16
// bits are read as words of two positions where their rows lie so (implicit_gemm_wgmma_load16.cuh).
//
// Sums: the rows of an accumulator are every second block of 8 positions, so that a warp has 32 neighbours in
// its two, which leave as runs of a channel (implicit_gemm_wgmma_store.cuh).
//
// Weights of a tap: [granule][column][16 bytes], columns being (tap along d, descending) x (channel). A plane
// is multiplied once for each output depth that it serves, by instructions of `channels` columns. They are
// all of one shape, which keeps those on the same sums in order, so they are waited for only to give slots
// back, one plane late. (One instruction for all depths of a plane would be wider and read the input less
// often, but differs in shape from plane to plane, and ptxas then waits for each.)
//
// Nothing is shared between blocks: no atomics, and the bits never change. Non-finite values: whatever an Inf
// or NaN of the input touches is Inf or NaN, and nothing else; one in the weights makes NaN also of outputs
// whose tap with it falls outside the input.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_input.cuh>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_products.cuh>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_weights.cuh>

namespace vox::cuda::flat {

template <class Tile>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const typename Tile::Storage* __restrict__ input,
                   const typename Tile::Element* __restrict__ packed, const typename Tile::Storage* bias,
                   typename Tile::Storage* output, const float* column_unscale,
                   const __grid_constant__ FlatProduct p, int64_t* not_split, const int64_t* wanted) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (wanted && *wanted == 0) return;
  extern __shared__ __align__(1024) unsigned char memory[];
  Barriers& plane_barriers = reinterpret_cast<Barriers*>(memory)[0];
  Barriers& stage_barriers = reinterpret_cast<Barriers*>(memory)[1];
  float* const plane_unscale = reinterpret_cast<float*>(memory + 2 * sizeof(Barriers));
  static_assert(2 * sizeof(Barriers) + most_slots * sizeof(float) <= barrier_bytes);
  unsigned char* const stages = memory + barrier_bytes;
  unsigned char* const planes = stages + p.stages * p.chunk * Tile::tap_bytes;
  unsigned char* const zeros = planes + p.planes * p.window * 16 * Tile::plane_granules;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // uniform

  if (threadIdx.x == 0) {
    for (int s = 0; s < p.planes; ++s) {
      ptx::mbarrier_init(plane_barriers.full[s], lanes);
      ptx::mbarrier_init(plane_barriers.empty[s], consumer_warps * lanes);
    }
    for (int s = 0; s < p.stages; ++s) {
      ptx::mbarrier_init(stage_barriers.full[s], 1);
      ptx::mbarrier_init(stage_barriers.empty[s], consumer_warps * lanes);
    }
    ptx::mbarrier_init_done();
  }
  if constexpr (Tile::scaled) {
    if (threadIdx.x < Tile::zero_bytes / 16) reinterpret_cast<uint4*>(zeros)[threadIdx.x] = uint4{0, 0, 0, 0};
    ptx::fence_proxy_async();
  }
  __syncthreads();

  if (warp < consumer_warps) {
    ptx::grow_registers_to<Tile::consumer_registers>();
    multiply<Tile>(planes, stages, zeros, plane_barriers, stage_barriers, plane_unscale, column_unscale, bias,
                   output, warp / 4, warp, lane, p);
  } else {
    ptx::shrink_registers_to<Tile::producer_registers>();
    if (warp < consumer_warps + loader_warps) {
      with_window<Tile>(p, [&]<class Window>() {
        bring_input<Tile, Window>(input, planes, plane_barriers, plane_unscale, warp - consumer_warps, lane,
                                  p, not_split);
      });
    } else if (lane == 0) {
      bring_weights<Tile>(packed, stages, stage_barriers, p);
    }
  }
#endif
}

}  // namespace vox::cuda::flat

#pragma once

// The flat product (flat_product.h) with sums that roll along d, by wgmma.
//
// Who owns what: a block of 16 warps is persistent and marches along d through tiles of 256, 384 or 512 flat
// positions (rolling_plan.h). Warps 0 to 7, two warpgroups, multiply; warps 8 to 14 bring the input and warp
// 15 the weights, through two rings of shared memory with a pair of mbarriers (full, empty) to a slot.
//
// An input plane serves taps_d depths of the output. A wgmma reads its rows of the input anew each time, so
// one instruction multiplies them for all these depths: its columns are (slot) x (channel), the sums of as
// many depths as there are taps. After a plane one depth is ready; it is stored, and its slot begins anew
// with the depth taps_d further on. So all instructions have one shape and the same sums, whatever the plane,
// and every plane is loaded once. What changes from plane to plane is which tap a slot has: the weights turn.
//
// Input plane: [granule][position of the window][16 bytes], as in implicit_gemm_wgmma.cuh, by the same code.
//
// Nothing is shared between blocks: no atomics, and the bits never change. Non-finite values are as there.

#include <voxgrad/cuda/conv3d/rolling_wgmma_input.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_products.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_weights.cuh>

namespace vox::cuda::rolling {

template <class Tile>
__global__ void __launch_bounds__(flat::block_threads, 1)
    product_kernel(const typename Tile::Storage* __restrict__ input,
                   const typename Tile::Element* __restrict__ packed, const typename Tile::Storage* bias,
                   typename Tile::Storage* output, const __grid_constant__ RollingPlan plan) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const FlatProduct& p = plan.product;
  extern __shared__ __align__(1024) unsigned char memory[];
  flat::Barriers& plane_barriers = reinterpret_cast<flat::Barriers*>(memory)[0];
  flat::Barriers& stage_barriers = reinterpret_cast<flat::Barriers*>(memory)[1];
  unsigned char* const results = memory + flat::barrier_bytes;
  unsigned char* const stages = results + Tile::results_bytes;
  unsigned char* const planes = stages + p.stages * p.chunk * Tile::tap_bytes;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // uniform

  if (threadIdx.x == 0) {
    for (int s = 0; s < p.planes; ++s) {
      ptx::mbarrier_init(plane_barriers.full[s], flat::lanes);
      ptx::mbarrier_init(plane_barriers.empty[s], flat::consumer_warps * flat::lanes);
    }
    for (int s = 0; s < p.stages; ++s) {
      ptx::mbarrier_init(stage_barriers.full[s], 1);
      ptx::mbarrier_init(stage_barriers.empty[s], flat::consumer_warps * flat::lanes);
    }
    ptx::mbarrier_init_done();
  }
  __syncthreads();

  if (warp < flat::consumer_warps) {
    ptx::grow_registers_to<Tile::consumer_registers>();
    rolling::multiply<Tile>(planes, stages, reinterpret_cast<float*>(results) + warp * Tile::warp_results,
                            plane_barriers, stage_barriers, bias, output, warp / 4, warp, lane, plan);
  } else {
    ptx::shrink_registers_to<Tile::producer_registers>();
    if (warp < flat::consumer_warps + flat::loader_warps) {
      flat::with_window<Tile>(p, [&]<class Window>() {
        rolling::bring_input<Tile, Window>(input, planes, plane_barriers, warp - flat::consumer_warps, lane,
                                           plan);
      });
    } else if (lane == 0) {
      rolling::bring_weights<Tile>(packed, stages, stage_barriers, plan);
    }
  }
#endif
}

}  // namespace vox::cuda::rolling

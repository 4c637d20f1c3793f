#pragma once

// The input of rolling_wgmma: each plane of a march once, by a warp to a window.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_input.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_work.cuh>

namespace vox::cuda::rolling {

/// A warp's share of the windows; `Window` says what a lane brings (implicit_gemm_wgmma_input.cuh).
template <class Tile, class Window>
__device__ void bring_input(const typename Tile::Storage* input, unsigned char* planes_memory,
                            flat::Barriers& barriers, int warp, int lane, const RollingPlan& plan) {
  const FlatProduct& p = plan.product;
  Window window;
  flat::Ring ring{p.planes};
  const int loaders = min(flat::loader_warps, p.planes);
  if (warp >= loaders) return;
  int turn = 0;  // whose the next plane is

  for_each_march(plan, [&](const March& m) {
    const int first_position = m.tile * Tile::positions,
              first_image = flat::place_of(first_position, p).image;
    const typename Tile::Storage* const source =
        input + (int64_t{first_image} * p.groups + m.group) * p.in_per_group * p.in_channel;
    int located = -1;  // the group of rows that `window` is for
    for (int v = m.first_plane; v < m.end_plane; ++v) {
      const int64_t cell = int64_t{v + p.d.base} * p.h.in_cells * p.w.in_cells;
      flat::for_each_pass(p, [&](int slab, int, int row_group) {
        if (turn == warp) {
          if (located != row_group)
            window.locate(first_position + row_group * p.rows * p.row_shift, first_image, lane, p);
          located = row_group;
          const int channel = slab * Tile::slab;
          window.bring(source + channel * p.in_channel + cell, p.in_per_group - channel,
                       reinterpret_cast<uint4*>(planes_memory + ring.slot * p.window * 32), lane, p,
                       [&] { ring.wait_empty(barriers); });
          ptx::fence_proxy_async();
          ptx::mbarrier_arrive(barriers.full[ring.slot]);
        }
        turn = turn + 1 == loaders ? 0 : turn + 1;
        ring.advance();
      });
    }
  });
}

}  // namespace vox::cuda::rolling

#pragma once

// The input of implicit_gemm_wgmma: planes of a window, loaded, rounded and stored by warps.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_work.cuh>
#include <voxgrad/cuda/conv3d/ring.cuh>

namespace vox::cuda::flat {

/// A warp's share of all planes: every loader_warps-th, so that there are as many planes under way as warps.
/// A lane takes every 32nd position of the window, some of them at a time: all of their loads, then all of
/// their stores. (Loads of later positions between these stores do not help: a warp has six scoreboards, and
/// a store would wait for the later loads as well.)
template <class Tile>
__device__ void bring_input(const typename Tile::Storage* input, unsigned char* planes_memory,
                            Barriers& barriers, int warp, int lane, const FlatProduct& p,
                            int64_t* not_split) {
  using Element = typename Tile::Element;
  constexpr int granule = Tile::granule;
  constexpr int batch = (Tile::producer_registers < 48 ? 16 : 20) / granule,
                batches = (most_window / 32 + batch - 1) / batch;
  constexpr uint32_t outside = 0xffffffff;
  using Storage = typename Tile::Storage;
  bool all_split = true;

  uint32_t from[batches][batch];  // where the lane's positions lie, from the first image's depth 0 on
  Ring ring{p.planes};
  const int loaders = min(loader_warps, p.planes);
  if (warp >= loaders) return;
  int turn = 0;  // whose the next plane is

  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at<Tile>(i, p);
    const int first_image = place_of(job.tile * Tile::positions, p).image;
    const int64_t image_numel = int64_t{p.groups} * p.in_per_group * p.in_channel;
    const Storage* const source =
        input + first_image * image_numel + int64_t{job.group} * p.in_per_group * p.in_channel;
    int located = -1;  // the group of rows that `from` is for
    for_each_pass(p, [&](int slab, int depth_group, int row_group) {
      const Planes planes = planes_of<Tile>(job, depth_group, p);
      for (int q = planes.first; q < planes.end; ++q) {
        const bool mine = turn == warp;
        turn = turn + 1 == loaders ? 0 : turn + 1;
        if (mine) {
          if (located != row_group) {
            located = row_group;
#pragma unroll
            for (int b = 0; b < batches; ++b) {
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const int position = (b * batch + u) * 32 + lane;
                const Place at =
                    place_of(job.tile * Tile::positions + position + row_group * p.rows * p.row_shift, p);
                const int h = at.h + p.h.base, w = at.w + p.w.base;
                const bool inside = position < p.window && at.image < p.batch &&
                                    static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in_cells) &&
                                    static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in_cells);
                from[b][u] =
                    inside ? static_cast<uint32_t>((at.image - first_image) * static_cast<int>(image_numel) +
                                                   h * p.w.in_cells + w)
                           : outside;
              }
            }
          }
          const int64_t cell = int64_t{planes.cell + q * p.d.tap_step} * p.h.in_cells * p.w.in_cells;
          auto* plane = reinterpret_cast<uint4*>(planes_memory + ring.slot * p.window * 32 * Tile::parts);
          bool empty = false;
          for (int channel = slab * Tile::slab; channel < (slab + 1) * Tile::slab; channel += granule) {
            const Storage* const channel_source = source + channel * p.in_channel + cell;
            const int left = p.in_per_group - channel;
#pragma unroll
            for (int b = 0; b < batches; ++b) {
              if (b * batch * 32 >= p.window) break;
              float value[batch][granule];
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const Storage* at = channel_source + from[b][u];
#pragma unroll
                for (int c = 0; c < granule; ++c) {
                  value[u][c] = from[b][u] != outside && c < left ? static_cast<float>(*at) : 0.0f;
                  at += p.in_channel;
                }
              }
              if (!empty) ring.wait_empty(barriers);
              empty = true;
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const int position = (b * batch + u) * 32 + lane;
                if (position >= p.window) continue;
#pragma unroll
                for (int part = 0; part < Tile::parts; ++part) {
                  alignas(16) Element bits[granule];
#pragma unroll
                  for (int c = 0; c < granule; ++c) bits[c] = Tile::Operand::part(value[u][c], part);
                  plane[part * 2 * p.window + position] = *reinterpret_cast<const uint4*>(bits);
                }
                if constexpr (Tile::split) {
#pragma unroll
                  for (int c = 0; c < granule; ++c) all_split &= has_tf32_low(tf32_high(value[u][c]));
                }
              }
            }
            plane += p.window;
          }
          ptx::fence_proxy_async();
          __syncwarp();
          if (lane == 0) ptx::mbarrier_arrive(barriers.full[ring.slot]);
        }
        ring.advance();
      }
    });
  }
  if (!all_split) *not_split = 1;
}

}  // namespace vox::cuda::flat

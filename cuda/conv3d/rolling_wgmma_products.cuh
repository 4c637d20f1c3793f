#pragma once

// The products of rolling_wgmma.

#include <voxgrad/cuda/conv3d/ring.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_store.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_work.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::rolling {

/// A warpgroup's half of every tile.
///
/// Of its positions each warp has 16 * tiles in a row, so that what it stores is long: groups of 8 rows of an
/// instruction lie `tiles` such groups apart, and the next tile begins 8 positions further on.
template <class Tile>
__device__ void multiply(const unsigned char* planes_memory, const unsigned char* stages, float* results,
                         flat::Barriers& plane_barriers, flat::Barriers& stage_barriers,
                         const typename Tile::Storage* bias, typename Tile::Storage* output, int warpgroup,
                         int warp, int lane, const RollingPlan& plan) {
  const FlatProduct& p = plan.product;
  constexpr int taps_d = Tile::taps_d, columns = Tile::columns, tiles = Tile::tiles;
  flat::Ring plane_ring{p.planes}, stage_ring{p.stages};
  flat::Released old_plane{plane_barriers}, old_stage{stage_barriers};
  float sum[tiles][columns / 2];  // in the tensor cores' order

  for_each_march(plan, [&](const March& m) {
    keep_bias<Tile>(results, bias, m, lane, p);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int s = 0; s < columns / 2; ++s) sum[t][s] = 0;
    }
    for (int v = m.first; v < m.end + taps_d - 1; ++v) {
      if (v >= m.first_plane && v < m.end_plane) {
        flat::for_each_pass(p, [&](int, int, int row_group) {
          const int taps = flat::taps_in(row_group, p);
          plane_ring.wait_full(plane_barriers);
          uint64_t a = ptx::shared_matrix(
              planes_memory + (plane_ring.slot * p.window * 2 + warpgroup * 64 * tiles) * 16, p.window * 16,
              128 * tiles);
          int column = 0;
          for (int first_tap = 0; first_tap < taps; first_tap += p.chunk) {
            const int chunk = min(p.chunk, taps - first_tap);
            stage_ring.wait_full(stage_barriers);
            uint64_t b =
                ptx::shared_matrix(stages + stage_ring.slot * p.chunk * Tile::tap_bytes, columns * 16, 128);
#pragma unroll 1
            for (int tap = 0; tap < chunk; ++tap) {
              ptx::wgmma_fence();
#pragma unroll
              for (int t = 0; t < tiles; ++t)
                ptx::wgmma<Tile::Operand::operand, columns>(sum[t], ptx::moved(a, t * 128), b);
              ptx::wgmma_commit();
              ptx::wgmma_wait<1>();  // for the tap before
              old_plane.now();
              old_stage.now();
              b = ptx::moved(b, Tile::tap_bytes);
              a += p.column_shift;  // positions, which are as long as the unit of addresses
              if (++column == p.w.taps) {
                column = 0;
                a += p.row_shift - p.w.taps * p.column_shift;
              }
            }
            old_stage.later(stage_ring.slot);
            stage_ring.advance();
          }
          old_plane.later(plane_ring.slot);
          plane_ring.advance();
        });
      }
      ptx::wgmma_wait<0>();
      old_plane.now();
      old_stage.now();

      const int ready = v - (taps_d - 1), ready_slot = (v + 1) % taps_d;
      if (ready >= m.first) {
        store<Tile>(sum, ready_slot, results, output, m, ready, warpgroup * 4 + warp % 4, lane, p);
      }
      // Selects, since branches that write some of the sums make ptxas move all of them.
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int s = 0; s < columns / 2; ++s)
          sum[t][s] = s / (Tile::channels / 2) == ready_slot ? 0.0f : sum[t][s];
      }
    }
  });
}

}  // namespace vox::cuda::rolling

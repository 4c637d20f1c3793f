#pragma once

// The producers of strided_wgmma_f16x3.cuh: 8 channels of a window from global memory to a stage, scaled by
// one power of two, as high and low parts.

#include <voxgrad/cuda/conv3d/strided_wgmma_f16x3_shared.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_input.cuh>

namespace vox::cuda::strided {

/// F16x3's parts of 8 channels: the high ones at `at`, the low ones `next` bytes on.
__device__ __forceinline__ void store_parts(unsigned char* at, int next, const float (&v)[8], float scale) {
  alignas(16) float16 bits[2][8];
#pragma unroll
  for (int part = 0; part < 2; ++part)
#pragma unroll
    for (int c = 0; c < 8; ++c) bits[part][c] = flat::F16x3::part(v[c] * scale, part);
  *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(bits[0]);
  *reinterpret_cast<uint4*>(at + next) = *reinterpret_cast<const uint4*>(bits[1]);
}

/// The scale of the stage before is tried, and nearly always fits; where it does not, the stage is brought
/// anew with another. (All values in the stage, or in registers, until the largest is known would be as many
/// instructions for every stage.)
template <class Block>
__device__ __forceinline__ void produce_scaled(const float* __restrict__ input,
                                               const unsigned char* __restrict__ packed,
                                               const Columns& columns, const ScaledShared& shared,
                                               int producer_group, const StridedPlan& p, int64_t* not_split) {
  using Operand = flat::F16x3;
  constexpr int batch = Block::batch;
  const int thread = threadIdx.x % producers;
  const int positions = 128 * Block::tiles / p.depths;
  const Share share = share_of(thread, p.lanes_w, p);
  const unsigned char* const weights =
      packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.block_weights;
  uint32_t* const table = shared.table + producer_group * (p.table_bytes / 8);
  LargestValues& largest = shared.largest[producer_group];
  const int64_t channel_bytes = int64_t{p.in_channel} * 4;
  flat::Ring ring{p.stages};
  int turn = 0, reduced = 0;
  float scale = 1;
  bool all_split = true;
  if (thread == 0 && producer_group == 0 && p.weight_bytes) {
    ptx::mbarrier_arrive_expecting(*shared.weights_here, p.weight_bytes);
    ptx::bulk_copy(shared.weights, weights, p.weight_bytes, *shared.weights_here);
  }
  const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
  for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
    const Tile tile = tile_of(number, positions, p);
    const char* const image = reinterpret_cast<const char*>(
        input + (int64_t{tile.image} * p.groups + columns.group) * p.in_per_group * p.in_channel);
    for (int k = 0; k < p.kinds; ++k) {
      const StridedKind& kind = p.kind[k];
      if (kind.stage_weights == 0) continue;
      const int count = share.phase < p.phases_w ? kind.planes * kind.plane * share.lanes : 0;
      const int own_position = share.phase * kind.phase_pitch + share.first;
      const int part_bytes = kind.granule_pitch * 16;
      bool located = false;
      for (int slab = 0; slab < p.slabs; ++slab, ring.advance(), turn ^= 1) {
        if (turn != producer_group) continue;
        if (!located) {
          locate(table, share, 4, tile, kind, p);
          located = true;
        }
        unsigned char* const stage = shared.stages + ring.slot * p.stage_bytes;
        const int left = p.in_per_group - slab * 8;
        const char* const from = image + slab * 8 * channel_bytes;
        float least;  // of what is largest at a position and not 0
        bool waited = false;
        for (;;) {
          float most = 0;
          least = INFINITY;
          unsigned char* to = stage + own_position * 16;
#pragma unroll 1
          for (int first = thread; first < count; first += batch * producers) {
            uint32_t offset[batch];
            float v[batch][8];
#pragma unroll
            for (int u = 0; u < batch; ++u) {
              const int i = first + u * producers;
              offset[u] = i < count ? table[i] : ~0u;
            }
            if (left >= 8)
              load<true>(v, offset, from, channel_bytes, left);
            else
              load<false>(v, offset, from, channel_bytes, left);
            if (!waited) {
              ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
              waited = true;
              if (thread == 0 && !p.weight_bytes) {
                ptx::mbarrier_arrive_expecting(shared.full[ring.slot], kind.stage_weights);
                ptx::bulk_copy(stage + 2 * part_bytes,
                               weights + kind.weights + int64_t{slab} * kind.stage_weights,
                               kind.stage_weights, shared.full[ring.slot]);
              }
            }
#pragma unroll
            for (int u = 0; u < batch; ++u) {
              float here = 0;
#pragma unroll
              for (int c = 0; c < 8; ++c) here = flat::larger_size(here, v[u][c]);
              most = flat::larger_size(most, here);
              if (here != 0) least = fminf(least, here);
              if (first + u * producers < count)
                store_parts(to + u * share.step * 16, part_bytes, v[u], scale);
            }
            to += batch * share.step * 16;
          }
          // Sizes compare as integers do, NaN being the largest.
          const uint32_t of_warp = __reduce_max_sync(0xffffffff, __float_as_uint(most));
          if (thread % 32 == 0) (&largest.of_warps[reduced].x)[thread / 32] = of_warp;
          ptx::named_barrier<producers>(3 + producer_group);
          const uint4 all = largest.of_warps[reduced];
          reduced ^= 1;
          most = __uint_as_float(max(max(all.x, all.y), max(all.z, all.w)));
          const float right = Operand::scale_for(most, scale);
          if (right == scale) {
            all_split &= Operand::range_holds(most);
            break;
          }
          scale = right;
        }
        all_split &= least * scale >= Operand::full;
        if (!waited) ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);  // a lane without a phase
        if (thread == 0) shared.unscale[ring.slot] = Operand::inverse(scale);
        // Every lane: racecheck does not see what lane 0 would say for the others, and it costs nothing.
        ptx::mbarrier_arrive(shared.full[ring.slot]);
      }
    }
  }
  if (!all_split) *not_split = 1;
}

}  // namespace vox::cuda::strided

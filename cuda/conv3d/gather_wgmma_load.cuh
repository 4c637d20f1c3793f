#pragma once

// The loader of gather_wgmma.cuh: one warp that starts copies.

#include <voxgrad/cuda/conv3d/gather_wgmma_shared.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::gather {

template <class Block>
__device__ __forceinline__ void load(const float* __restrict__ input,
                                     const unsigned char* __restrict__ packed, const Columns& columns,
                                     const Shared& shared, const GatherPlan& p) {
  const int lane = threadIdx.x % 32;
  if (lane >= copying_lanes) return;
  flat::Ring ring{p.stages};
  const int64_t slab_weights = int64_t{p.d.kernel} * p.slot_weights;
  const unsigned char* const weights =
      packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.slabs * slab_weights;
  const float* const end = input + int64_t{p.batch} * p.groups * p.in_per_group * p.in_channel;
  Tile tile{};
  Rows rows{};
  walk<Block>(
      p,
      [&](const Tile& next) {
        tile = next;
        rows = rows_of(tile, Block::cells, p);
      },
      [](int) {},
      [&](int plane, const Live<Block::slots>& live) {
        for (int s = 0; s < p.slabs; ++s, ring.advance()) {
          unsigned char* const stage = shared.stages + ring.slot * p.stage_bytes;
          ptx::Mbarrier& full = shared.full[ring.slot];
          if (lane < slab) {
            const float* const channel = channel_at(input, tile, columns, s * slab + lane, p);
            const int word = static_cast<int>(word_of(channel, plane, rows.first, p));
            const int words = word + rows.count * p.w.in;
            const float* const from = channel + int64_t{plane} * p.in_plane + rows.first * p.w.in - word;
            float* const to = reinterpret_cast<float*>(stage + lane * p.channel_bytes);
            // Copies are of 16 bytes, but for those at its ends of which the tensor has a part.
            const int begin = from < input ? 4 : 0, all = (words + 3) / 4 * 4;
            const int stop = from + all > end ? all - 4 : all, bytes = max(stop - begin, 0) * 4;
            ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
            if (stop - begin < all) {
              for (int i = word; i < min(begin, words); ++i) to[i] = from[i];
              for (int i = max(begin, stop); i < words; ++i) to[i] = from[i];
              ptx::fence_proxy_async();  // before another copy to the same place
            }
            ptx::mbarrier_arrive_expecting(full, bytes);
            if (bytes > 0) ptx::bulk_copy(to + begin, from + begin, bytes, full);
          } else {
            ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
            ptx::mbarrier_arrive_expecting(full, __popc(live.mask) * p.slot_weights);
#pragma unroll
            for (int slot = 0; slot < Block::slots; ++slot)
              if (live.tap[slot] >= 0)
                ptx::bulk_copy(stage + p.stage_bytes - (Block::slots - slot) * p.slot_weights,
                               weights + s * slab_weights + int64_t{live.tap[slot]} * p.slot_weights,
                               p.slot_weights, full);
          }
        }
      },
      [](int, int) {});
}

}  // namespace vox::cuda::gather

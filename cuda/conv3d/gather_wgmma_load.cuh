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
          ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
          if (lane < slab) {
            const float* const channel = channel_at(input, tile, columns, s * slab + lane, p);
            const uint32_t word = word_of(channel, plane, rows.first, p);
            const int words = static_cast<int>(word) + rows.count * p.w.in;
            const float* const from = channel + int64_t{plane} * p.in_plane + rows.first * p.w.in - word;
            float* const to = reinterpret_cast<float*>(stage + lane * p.channel_bytes);
            // Copies are of 16 bytes, but for those at its ends of which the tensor has a part.
            int begin = 0, stop = (words + 3) / 4 * 4;
            if (from < input || from + stop > end) {
              if (from < input) begin = 4;
              if (from + stop > end) stop -= 4;
              for (int i = static_cast<int>(word); i < words; ++i)
                if (i < begin || i >= stop) to[i] = from[i];
              ptx::fence_proxy_async();  // before another copy to the same place
            }
            const int bytes = max(stop - begin, 0) * 4;
            ptx::mbarrier_arrive_expecting(shared.full[ring.slot], bytes);
            if (bytes > 0) ptx::bulk_copy(to + begin, from + begin, bytes, shared.full[ring.slot]);
          } else {
            ptx::mbarrier_arrive_expecting(shared.full[ring.slot], __popc(live.mask) * p.slot_weights);
#pragma unroll
            for (int slot = 0; slot < Block::slots; ++slot)
              if (live.tap[slot] >= 0)
                ptx::bulk_copy(stage + p.stage_bytes - (Block::slots - slot) * p.slot_weights,
                               weights + s * slab_weights + int64_t{live.tap[slot]} * p.slot_weights,
                               p.slot_weights, shared.full[ring.slot]);
          }
        }
      },
      [](int, int) {});
}

}  // namespace vox::cuda::gather

#pragma once

// The loader of gather_wgmma.cuh: one warp that starts copies, a lane for each channel and for each slot's
// weights. Its instructions stand between a place that is free and the copy to it, so they are few.

#include <voxgrad/cuda/conv3d/gather_wgmma_shared.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::gather {

/// Elements at the ends of a piece of 16-byte granules that the tensor has a part of, brought one by one:
/// those of [word, words) outside of [begin, stop).
__device__ __forceinline__ void copy_ends(float* to, const float* from, int word, int begin, int stop,
                                          int words) {
#pragma unroll 1
  for (int i = word; i < min(begin, words); ++i) to[i] = from[i];
#pragma unroll 1
  for (int i = max(begin, stop); i < words; ++i) to[i] = from[i];
  ptx::fence_proxy_async();  // before another copy to the same place
}

template <class Block>
__device__ __forceinline__ void load(const float* __restrict__ input,
                                     const unsigned char* __restrict__ packed, const Columns& columns,
                                     const Shared& shared, const GatherPlan& p) {
  const int lane = threadIdx.x % 32;
  if (lane >= Block::copying_lanes) return;
  const bool of_channel = lane < slab;
  const int own_offset =
      of_channel ? lane * p.channel_bytes : p.stage_bytes - (Block::copying_lanes - lane) * p.slot_weights;
  const unsigned char* const weights =
      packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.slabs * p.d.kernel *
                   p.slot_weights;
  const float* const end = input + int64_t{p.batch} * p.groups * p.in_per_group * p.in_channel;
  flat::Ring ring{p.stages};
  const float* channels = nullptr;
  Rows rows{};
  walk<Block>(
      p,
      [&](const Tile& tile) {
        channels = first_channel(input, tile, columns, p);
        rows = rows_of(tile, Block::cells, p);
      },
      [](int) {},
      [&](int plane, const Live& live) {
        const int64_t first = int64_t{plane} * p.in_plane + rows.first * p.w.in;
        const int tap = live.tap(lane - slab);
#pragma unroll 1
        for (int s = 0; s < p.slabs; ++s, ring.advance()) {
          unsigned char* to = shared.stages + ring.slot * p.stage_bytes + own_offset;
          const void* from = weights + (int64_t{s} * p.d.kernel + tap) * p.slot_weights;
          int bytes = tap >= 0 ? p.slot_weights : 0;
          if (of_channel) {
            const float* const at = channel_at(channels, s * slab + lane, p) + first;
            const int word = word_of(at), words = word + rows.count * p.w.in;
            bytes = (words + 3) / 4 * 16;
            from = at - word;
          }
          ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
          if (of_channel &&
              (from < input || static_cast<const char*>(from) + bytes > reinterpret_cast<const char*>(end))) {
            const float* const numbers = static_cast<const float*>(from);
            const float* const at = channel_at(channels, s * slab + lane, p) + first;
            const int begin = numbers < input ? 4 : 0;
            const int stop = bytes / 4 - (numbers + bytes / 4 > end ? 4 : 0);
            copy_ends(reinterpret_cast<float*>(to), numbers, word_of(at), begin, stop,
                      word_of(at) + rows.count * p.w.in);
            to += begin * 4;
            from = numbers + begin;
            bytes = max(stop - begin, 0) * 4;
          }
          ptx::mbarrier_arrive_expecting(shared.full[ring.slot], bytes);
          if (bytes > 0) ptx::bulk_copy(to, from, bytes, shared.full[ring.slot]);
        }
      },
      [](int, int) {});
}

}  // namespace vox::cuda::gather

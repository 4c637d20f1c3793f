#pragma once

// What the parts of gather_wgmma.cuh share: what a block computes, its walk, and its shared memory.

#include <voxgrad/cuda/conv3d/gather_plan.h>
#include <voxgrad/cuda/conv3d/ring.cuh>
#include <voxgrad/cuda/ptx/mbarrier.cuh>

namespace vox::cuda::gather {

constexpr int slab = 8;                                // channels of the input in a stage
constexpr int copying_lanes = slab + 1;                // one for each channel, and one for weights
constexpr int most_stages = 8;

/// What a block computes at once (GatherTile), with its sums.
template <int channels_, int slots_, int tiles_, int warpgroups_>
struct Block {
  static constexpr int channels = channels_, slots = slots_, tiles = tiles_, warpgroups = warpgroups_;
  static constexpr int cells = warpgroups * tiles * 64;
  static constexpr int sums = channels / 2;  // of a tile and slot, in a thread
  static constexpr int consumer_threads = warpgroups * 128;
  static constexpr int threads = consumer_threads + 128;  // one of those warps loads
  // A block has as many to share out as it is launched with.
  static constexpr int launch_registers = 65536 / threads / 8 * 8, loader_registers = 24;
  static constexpr int consumer_registers =
      ((warpgroups + 1) * launch_registers - loader_registers) / warpgroups / 8 * 8;
};

/// A block of channels, and a tile of cells.
struct Columns {
  int group, channel_block;
};
struct Tile {
  int image, cell;
};

/// The rows of the input that a tile's cells touch, and those between.
struct Rows {
  int first, count;
};
__device__ __forceinline__ Rows rows_of(const Tile& tile, int cells, const GatherPlan& p) {
  const int last_cell = min(tile.cell + cells, p.cells) - 1;
  const int first = p.h.first_of(tile.cell / p.w.out);
  const int last = p.h.first_of(last_cell / p.w.out) + (p.h.kernel - 1) * p.h.dilation;
  const int low = min(max(first, 0), p.h.in - 1);
  return {low, max(min(last, p.h.in - 1) - low, 0) + 1};
}

/// Where a row of a channel and plane begins in the input, in elements modulo 4: in shared memory its first
/// element has that place in its 16 bytes as well.
__device__ __forceinline__ uint32_t word_of(const float* channel, int d, int row, const GatherPlan& p) {
  return (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(channel) / 4) +
          static_cast<uint32_t>(d) * p.in_plane + static_cast<uint32_t>(row) * p.w.in) % 4;
}

/// The taps along d that a plane is multiplied by: of slot s, for the output's depth that it has, or -1.
template <int slots>
struct Live {
  int tap[slots];
  int mask = 0;
};
template <int slots>
__device__ __forceinline__ Live<slots> live_of(int plane, int first, int last, const GatherPlan& p) {
  Live<slots> live;
#pragma unroll
  for (int s = 0; s < slots; ++s) live.tap[s] = -1;
  for (int k = 0; k < p.d.kernel; ++k) {
    const int touched = plane + p.d.padding - k * p.d.dilation;
    const int depth = touched / p.d.stride;
    if (touched < 0 || touched % p.d.stride != 0 || depth < first || depth >= last) continue;
#pragma unroll
    for (int s = 0; s < slots; ++s)
      if (depth % slots == s) live.tap[s] = k, live.mask |= 1 << s;
  }
  return live;
}

/// Walks through what this block computes: on_tile(tile) once for each tile; then, plane after plane,
/// on_first(slot) for a depth whose first plane comes, on_plane(plane, Live) if there is something to
/// multiply, on_last(slot, depth) for a depth that is complete.
template <class Block, class OnTile, class OnFirst, class OnPlane, class OnLast>
__device__ __forceinline__ void walk(const GatherPlan& p, OnTile on_tile, OnFirst on_first, OnPlane on_plane,
                                     OnLast on_last) {
  int begin = blockIdx.x * p.steps;
  const int end = min(begin + p.steps, p.batch * p.plane_tiles * p.d.out);
  const int reach = (p.d.kernel - 1) * p.d.dilation;
  while (begin < end) {
    const int column = begin / p.d.out, first = begin % p.d.out;
    const int last = min(p.d.out, first + end - begin);
    on_tile(Tile{column / p.plane_tiles, column % p.plane_tiles * Block::cells});
    int opened = first, closed = first;  // the next to be
    for (int plane = p.d.first_of(first); plane <= p.d.first_of(last - 1) + reach; ++plane) {
      if (opened < last && plane == p.d.first_of(opened)) on_first(opened++ % Block::slots);
      if (static_cast<unsigned>(plane) < static_cast<unsigned>(p.d.in)) {
        const auto live = live_of<Block::slots>(plane, first, last, p);
        if (live.mask) on_plane(plane, live);
      }
      if (closed < last && plane == p.d.first_of(closed) + reach) {
        on_last(closed % Block::slots, closed);
        ++closed;
      }
    }
    begin += last - first;
  }
}

struct Shared {
  unsigned char* stages;  // each [channel][row][column] of floats, then the weights of each slot
  ptx::Mbarrier *full, *empty;
};

}  // namespace vox::cuda::gather

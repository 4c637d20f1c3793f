#pragma once

// What the parts of gather_wgmma.cuh share: what a block computes, its walk, and its shared memory.

#include <voxgrad/cuda/conv3d/gather_plan.h>
#include <voxgrad/cuda/conv3d/ring.cuh>
#include <voxgrad/cuda/ptx/mbarrier.cuh>

namespace vox::cuda::gather {

constexpr int consumer_threads = gather_warpgroups * 128;
constexpr int block_threads = consumer_threads + 128;  // one of those warps loads
constexpr int consumer_registers = 232, loader_registers = 40;
constexpr int slab = 8;  // channels of the input in a stage

/// What a block computes at once (GatherTile), with its sums.
template <int channels_, int slots_, int tiles_, bool split_>
struct Block {
  static constexpr int channels = channels_, slots = slots_, tiles = tiles_;
  static constexpr bool split = split_;
  static constexpr int cells = gather_warpgroups * tiles * 64;
  static constexpr int sums = channels / 2;           // of a tile and slot, in a thread
  static constexpr int copying_lanes = slab + slots;  // one for each channel, and for each slot's weights
};

/// A block of channels, and a tile of cells.
struct Columns {
  int group, channel_block;
};
struct Tile {
  int image, cell;
};

/// Where the first tap of an output cell lies on an axis.
__device__ __forceinline__ int first_of(int cell, const GatherAxis& axis) {
  return cell * axis.stride - axis.padding;
}

/// The rows of the input that a tile's cells touch, and those between.
struct Rows {
  int first, count;
};
__device__ __forceinline__ Rows rows_of(const Tile& tile, int cells, const GatherPlan& p) {
  const int last_cell = min(tile.cell + cells, p.cells) - 1;
  const int first = first_of(tile.cell / p.w.out, p.h);
  const int last = first_of(last_cell / p.w.out, p.h) + (p.h.kernel - 1) * p.h.dilation;
  const int low = min(max(first, 0), p.h.in - 1);
  return {low, max(min(last, p.h.in - 1) - low, 0) + 1};
}

/// A channel of the input. Those behind the group's last, which have no weights, are the last once more: what
/// it touches is not finite for its own sake.
__device__ __forceinline__ const float* channel_at(const float* first_of_group, int in_group,
                                                   const GatherPlan& p) {
  return first_of_group + int64_t{min(in_group, p.in_per_group - 1)} * p.in_channel;
}
__device__ __forceinline__ const float* first_channel(const float* input, const Tile& tile,
                                                      const Columns& columns, const GatherPlan& p) {
  return input + (int64_t{tile.image} * p.groups + columns.group) * p.in_per_group * p.in_channel;
}

/// An address in elements modulo 4: in shared memory what is there has that place in its 16 bytes as well.
__device__ __forceinline__ int word_of(const float* at) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(at) / 4 % 4);
}

/// The taps along d that a plane is multiplied by: in bits 10 s to 10 s + 9 that of slot s, for the output's
/// depth that it has, and 1; 0 if there is none.
struct Live {
  uint32_t taps = 0;

  __device__ __forceinline__ int tap(int slot) const {
    return static_cast<int>(taps >> 10 * slot & 1023) - 1;
  }
  /// Bit s: slot s has one.
  template <int slots>
  __device__ __forceinline__ int mask() const {
    int all = 0;
#pragma unroll
    for (int s = 0; s < slots; ++s) all |= tap(s) >= 0 ? 1 << s : 0;
    return all;
  }
};
/// Of the depths [closed, opened), which have begun and are not complete.
template <int slots>
__device__ __forceinline__ Live live_of(int plane, int closed, int opened, const GatherPlan& p) {
  Live live;
#pragma unroll 1
  for (int depth = closed; depth < opened; ++depth) {
    const int distance = plane - first_of(depth, p.d);
    const int k = p.d.dilation == 1 ? distance : distance / p.d.dilation;
    if (k * p.d.dilation == distance) live.taps |= static_cast<uint32_t>(k + 1) << 10 * (depth % slots);
  }
  return live;
}

/// Walks through what this block computes: on_tile(tile) once for each job; then, plane after plane,
/// on_first(slot) for a depth whose first plane comes, on_plane(plane, Live) if there is something to
/// multiply, on_last(slot, depth) for a depth that is complete.
template <class Block, class OnTile, class OnFirst, class OnPlane, class OnLast>
__device__ __forceinline__ void walk(const GatherPlan& p, OnTile on_tile, OnFirst on_first, OnPlane on_plane,
                                     OnLast on_last) {
  const int reach = (p.d.kernel - 1) * p.d.dilation;
  for (int job = blockIdx.x; job < p.jobs; job += gridDim.x) {
    const int part = job / p.plane_tiles;
    const int first = part % p.parts * p.depths, last = min(first + p.depths, p.d.out);
    on_tile(Tile{part / p.parts, job % p.plane_tiles * Block::cells});
    int opened = first, closed = first;  // the next to be
    for (int plane = first_of(first, p.d); plane <= first_of(last - 1, p.d) + reach; ++plane) {
      if (opened < last && plane == first_of(opened, p.d)) on_first(opened++ % Block::slots);
      if (static_cast<unsigned>(plane) < static_cast<unsigned>(p.d.in)) {
        const Live live = live_of<Block::slots>(plane, closed, opened, p);
        if (live.taps != 0) on_plane(plane, live);
      }
      if (closed < last && plane == first_of(closed, p.d) + reach) {
        on_last(closed % Block::slots, closed);
        ++closed;
      }
    }
  }
}

struct Shared {
  unsigned char* stages;  // each [channel][row][column] of floats, then the weights of each slot
  ptx::Mbarrier *full, *empty;
};

}  // namespace vox::cuda::gather

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::gather {

// The kernel argument of kernel.cuh. The host builds it and passes it by value.

/// The most slots (output depths whose sums are kept at a time), and the most taps along h and w together.
inline constexpr int most_slots = 3, most_taps = 64;
inline constexpr int most_stages = 8;

/// One axis: output cell o reads o * stride - padding + k * dilation.
struct Axis {
  int in, out, stride, padding, dilation, kernel;
};

/// A tap along h and w.
struct Tap {
  int offset;      ///< in bytes, from the first tap's cell, in a channel's rows
  uint32_t where;  ///< bit k_h, and bit 16 + k_w
};

struct Plan {
  Axis d, h, w;
  bool transposed;  ///< the weights' taps are reversed
  bool neighbours;  ///< cells that follow each other along w are an odd number of elements apart
  int batch, groups, in_per_group, out_per_group;
  int in_channel, out_channel, in_plane, cells;  ///< elements: of a channel, and of a plane
  int channel_blocks, plane_tiles;
  int parts, depths;  ///< parts of the output along d, and depths of each
  int k_blocks;       ///< number of k-blocks of 8 input channels
  int taps;           ///< number of taps along h and w
  int channel_bytes;  ///< of a channel's rows in a stage
  int slot_weights;   ///< bytes: the weights of one tap along d and one k-block
  int chunk;          ///< if split: taps of a stage that the tensor cores add up before sums move
  int stages, stage_bytes, shared_bytes;
  int jobs, blocks;        ///< of one block of channels: parts of tiles; blocks that share them
  Tap tap[most_taps + 1];  ///< the last one is read ahead, but not used
};

inline constexpr int warpgroups = 2;

/// The channel of a k-block that k stands for in an instruction. A warp reads the channels of k (or k + 4) of
/// 4 lanes at once. They are neighbours; or, where cells are an even number of elements apart, two that are 4
/// apart and their neighbours (channel_words in gather/plan.cpp).
constexpr int channel_of(int k, bool neighbours) {
  return neighbours ? k : k % 2 * 4 + k % 4 / 2 + k / 4 * 2;
}

/// What a block computes at once: `warpgroups` x `tiles` x 64 cells, times `channels`, times `slots`. Numbers
/// are rounded to TF32, or `split` in two.
struct TileShape {
  int channels, slots, tiles;
  bool split;
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

constexpr int cells_of(const TileShape& t) { return warpgroups * t.tiles * 64; }

/// Whether its sums fit in registers (split, a thread has two of each).
constexpr bool has_kernel(const TileShape& t) {
  const int sums = t.channels * t.slots * t.tiles / (t.split ? 1 : 2);
  const bool spills = t.slots == 3 && (t.channels == 48 || (t.split && t.tiles > 1));
  return sums <= 128 && !spills;
}

/// All combinations; some have no kernel.
inline constexpr int tile_shapes = 2 * most_slots * 4 * 2;
constexpr TileShape tile_shape(int number) {
  const auto [split, slots, channels, tiles] = digits(number, {most_slots, 4, 2});
  return {16 * (channels + 1), slots + 1, tiles + 1, split == 1};
}

struct Planned {
  TileShape tile;
  Plan plan;
};

/// The plan that takes the least time on a machine. Nothing for an empty batch, for
/// conv_transpose3d with a stride, if a plane serves more depths than there are slots, for more taps than fit
/// a plan or more than 16 along an axis, if two stages do not fit shared memory, or if numbers do not fit
/// their types. Whether there is a plan does not depend on the number of multiprocessors.
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, bool split,
                                 const Machine& machine);

// ---- How a block walks through its jobs -------------------------------------------------------------------

/// Where the first tap of an output cell lies on an axis.
constexpr int first_of(int cell, const Axis& axis) { return cell * axis.stride - axis.padding; }

struct Tile {
  int image, cell;
};

/// The rows of the input that a tile's cells touch, and those in between.
struct Rows {
  int first, count;
};
constexpr Rows rows_of(const Tile& tile, int cells, const Plan& p) {
  const int last_cell = std::min(tile.cell + cells, p.cells) - 1;
  const int first = first_of(tile.cell / p.w.out, p.h);
  const int last = first_of(last_cell / p.w.out, p.h) + (p.h.kernel - 1) * p.h.dilation;
  const int low = std::min(std::max(first, 0), p.h.in - 1);
  return {low, std::max(std::min(last, p.h.in - 1) - low, 0) + 1};
}

/// The taps along d that a plane is multiplied by. Bits 10 s to 10 s + 9 hold 1 + the tap of slot s for the
/// output depth in that slot, or 0 if there is none.
struct Live {
  uint32_t taps = 0;

  constexpr int tap(int slot) const { return static_cast<int>(taps >> 10 * slot & 1023) - 1; }
  /// Bit s: slot s has a tap.
  template <int slots>
  constexpr int mask() const {
    int all = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int s = 0; s < slots; ++s) all |= tap(s) >= 0 ? 1 << s : 0;
    return all;
  }
};
/// The taps for the depths [first_incomplete, next_to_start), which have begun and are not complete.
constexpr Live live_of(int plane, int first_incomplete, int next_to_start, int slots, const Plan& p) {
  Live live;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (int depth = first_incomplete; depth < next_to_start; ++depth) {
    const int distance = plane - first_of(depth, p.d);
    const int k = p.d.dilation == 1 ? distance : distance / p.d.dilation;
    if (k * p.d.dilation == distance) live.taps |= static_cast<uint32_t>(k + 1) << 10 * (depth % slots);
  }
  return live;
}

/// Walks through the jobs from `first_job` on, every `job_step`-th. It calls on_tile(tile) once for each job;
/// then, plane after plane, on_first(slot) for a depth whose first plane this is, on_plane(plane, Live) if
/// there is something to multiply, and on_last(slot, depth) for a depth that is complete.
template <class OnTile, class OnFirst, class OnPlane, class OnLast>
constexpr void walk(const Plan& p, const TileShape& shape, int first_job, int job_step, OnTile on_tile,
                    OnFirst on_first, OnPlane on_plane, OnLast on_last) {
  const int reach = (p.d.kernel - 1) * p.d.dilation;
  for (int job = first_job; job < p.jobs; job += job_step) {
    const auto [image, part, tile] = digits(job, {p.parts, p.plane_tiles});
    const int first = part * p.depths, last = std::min(first + p.depths, p.d.out);
    on_tile(Tile{image, tile * cells_of(shape)});
    int next_to_start = first, first_incomplete = first;  // depths
    for (int plane = first_of(first, p.d); plane <= first_of(last - 1, p.d) + reach; ++plane) {
      if (next_to_start < last && plane == first_of(next_to_start, p.d))
        on_first(next_to_start++ % shape.slots);
      if (within(plane, p.d.in)) {
        const Live live = live_of(plane, first_incomplete, next_to_start, shape.slots, p);
        if (live.taps != 0) on_plane(plane, live);
      }
      if (first_incomplete < last && plane == first_of(first_incomplete, p.d) + reach) {
        on_last(first_incomplete % shape.slots, first_incomplete);
        ++first_incomplete;
      }
    }
  }
}

}  // namespace vox::cuda::conv::gather

#pragma once

#include <cstdint>
#include <optional>

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
  int slabs;          ///< number of slabs of 8 input channels
  int taps;           ///< number of taps along h and w
  int channel_bytes;  ///< of a channel's rows in a stage
  int slot_weights;   ///< bytes: the weights of one tap along d and one slab
  int chunk;          ///< if split: taps of a stage that the tensor cores add up before sums move
  int stages, stage_bytes, shared_bytes;
  int jobs, blocks;        ///< of one block of channels: parts of tiles; blocks that share them
  Tap tap[most_taps + 1];  ///< the last one is read ahead, but not used
};

inline constexpr int warpgroups = 2;

/// The channel of a slab that k stands for in an instruction. A warp reads the channels of k (or k + 4) of 4
/// lanes at once. They are neighbours; or, where cells are an even number of elements apart, two that are 4
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

/// Whether there is a kernel for it: its sums must fit in registers (split, a thread has two of each).
constexpr bool has_kernel(const TileShape& t) {
  const int sums = t.channels * t.slots * t.tiles / (t.split ? 1 : 2);
  const bool spills = t.slots == 3 && (t.channels == 48 || (t.split && t.tiles > 1));
  return sums <= 128 && t.slots <= most_slots && !spills;
}

struct Planned {
  TileShape tile;
  Plan plan;
};

/// The plan that takes the least time on so many multiprocessors. Nothing for an empty batch, for
/// conv_transpose3d with a stride, if a plane serves more depths than there are slots, for more taps than fit
/// a plan or more than 16 along an axis, if two stages do not fit shared memory, or if numbers do not fit
/// their types. Whether there is a plan does not depend on the number of multiprocessors.
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, bool split, int multiprocessors);

}  // namespace vox::cuda::conv::gather

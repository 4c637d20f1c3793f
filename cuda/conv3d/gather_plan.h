#pragma once

#include <cstdint>
#include <optional>

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda {

// What gather_wgmma.cuh is told on every call: built on the host, passed by value.

/// The most slots (depths of the output whose sums are kept at a time), and taps along h and w together.
inline constexpr int most_gather_slots = 3, most_gather_taps = 64;

/// One axis of conv3d: output cell o reads o * stride - padding + k * dilation.
struct GatherAxis {
  int in, out, stride, padding, dilation, kernel;

  /// Of the first tap.
#ifdef __CUDACC__
  __device__ __forceinline__
#endif
      int first_of(int o) const {
    return o * stride - padding;
  }
};

/// A tap along h and w.
struct GatherTap {
  int offset;       ///< bytes from that of the first tap, in a channel's rows
  uint32_t where;   ///< bit k_h, and bit 16 + k_w
};

struct GatherPlan {
  GatherAxis d, h, w;
  int batch, groups, in_per_group, out_per_group;
  int in_channel, out_channel, in_plane, cells;  ///< elements; of a channel, and of a plane
  int channel_blocks, plane_tiles;
  int slabs;                       ///< of 8 channels of the input
  int taps;                        ///< along h and w
  int channel_bytes;               ///< of a channel's rows in a stage
  int slot_weights;                ///< bytes: the weights of one tap along d and one slab
  int stages, stage_bytes, shared_bytes;
  int blocks, steps;               ///< of one block of channels; depths of each of them
  GatherTap tap[most_gather_taps];
};

/// What a block computes at once: `warpgroups` x `tiles` x 64 cells, times `channels`, times `slots`.
struct GatherTile {
  int channels, slots, tiles, warpgroups;
  friend bool operator==(const GatherTile&, const GatherTile&) = default;
};

/// As many as have registers for their sums.
constexpr int gather_warpgroups(int channels, int slots, int tiles) {
  return channels * slots * tiles > 96 || slots * tiles > 4 ? 3 : 4;
}

/// The tile for a geometry, of which a warpgroup has one or two; nothing if there is none.
std::optional<GatherTile> gather_tile(const Conv3dGeometry& g);

/// Nothing if numbers do not fit their types, or a stage shared memory.
std::optional<GatherPlan> gather_plan(const Conv3dGeometry& g, const GatherTile& tile, int multiprocessors);

}  // namespace vox::cuda

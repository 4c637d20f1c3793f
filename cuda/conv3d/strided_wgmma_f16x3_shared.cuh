#pragma once

// What the parts of strided_wgmma_f16x3.cuh share: a block's sums, and what it holds of scales.

#include <voxgrad/cuda/conv3d/strided_wgmma_shared.cuh>

namespace vox::cuda::strided {

/// Products of a stage are added up for one phase at a time, of all tiles, and then move to its totals. Where
/// these need many registers, producers have fewer loads in flight.
template <int channels_, int slots_, int tiles_>
struct ScaledBlock : Block<float, flat::F16x3, channels_, slots_, tiles_> {
  static constexpr int held = (slots_ + 1) * tiles_ * channels_ / 2;  // sums and totals of a thread
  static constexpr int consumer_registers = held > 144   ? 192
                                            : held > 128 ? 184
                                                         : 168,
                       producer_registers = 256 - consumer_registers;
  static constexpr int batch = producer_registers < 72 ? 3 : 4;
};

/// How many instructions may be in a sum before it moves, for each kind and slot.
struct MostInSum {
  uint8_t of[most_kinds][most_slots];
};

/// The largest value that each warp of a group of producers has seen; of two stages, since a warp may be a
/// stage ahead of those that still read.
struct LargestValues {
  uint4 of_warps[2];
};

struct ScaledShared : Shared {
  float *unscale, *column_unscale;  // of the stages' input, and of the block's channels
  LargestValues* largest;           // of each group of producers
};

}  // namespace vox::cuda::strided

#pragma once

// How the flat kernel cuts a product among its blocks (plan.h), and how a cut is chosen. rolling uses this to
// compare itself with flat.

#include <voxgrad/cuda/conv3d/flat/plan.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>

#include <type_traits>

namespace vox::cuda::conv::flat {

/// How a kernel cuts the work.
template <class Storage_, class Operand_, int channels_, int depths_, int taps_d_>
struct Tile {
  using Storage = Storage_;
  using Operand = Operand_;
  using Element = typename Operand::Element;
  static constexpr int positions = 256, channels = channels_, depths = depths_, taps_d = taps_d_;
  static constexpr int parts = Operand::parts;
  static constexpr bool scaled = std::is_same_v<Operand, F16x3>;
  static constexpr int granule = 16 / sizeof(Element);  // channels
  static constexpr int slab_granules = scaled ? 1 : 2;  // two are the k of one instruction
  static constexpr int slab = slab_granules * granule;  // channels
  static constexpr int plane_granules = slab_granules * parts;
  static constexpr int planes = depths + taps_d - 1;  // that a tile reads at one group of taps
  static constexpr int part_bytes = taps_d * channels * 16 * slab_granules;  // of the weights of a tap
  static constexpr int tap_bytes = part_bytes * (scaled ? 3 : 1);
  static constexpr int zero_bytes = scaled ? part_bytes : 0;  // shared memory beyond that of the plan
  static constexpr TileShape host{
      positions, depths, channels, taps_d, slab, plane_granules / 2, is_16_bit_v<Storage>, scaled};

  static constexpr int sums = depths * channels * parts;  // of a thread: two 64 x (depths * channels) tiles
  static constexpr int consumer_registers = sums > 176 ? 216 : sums > 144 ? 208 : 192;
  static constexpr int producer_registers = 256 - consumer_registers;
  static constexpr int loads = scaled                    ? (producer_registers < 64 ? 16 : 32)
                               : producer_registers < 48 ? 16
                                                         : 20;  // of a lane, under way: as registers allow
  static_assert(sums <= 192 && channels % 8 == 0);
};

constexpr int64_t most_shared = h200.block_shared_bytes - barrier_bytes;

/// Calls f(tile) with the tile for the problem: the fewest blocks of channels and then the least padding, as
/// many depths as sums have registers for (two sums where operands are scaled), and the largest group of taps
/// along d that divides their number.
template <class Storage, class Operand, class F>
auto visit_tile(int64_t out_per_group, int taps_d, F f) {
  constexpr bool scaled = std::is_same_v<Operand, F16x3>;
  const auto with = [&]<int channels, int depths>() {
    if (taps_d % 3 == 0) return f(Tile<Storage, Operand, channels, depths, 3>{});
    if (taps_d % 2 == 0) return f(Tile<Storage, Operand, channels, depths, 2>{});
    return f(Tile<Storage, Operand, channels, depths, 1>{});
  };
  const int64_t eighths = (out_per_group + 7) / 8, blocks = (eighths + 7) / 8;
  const int64_t channels = (eighths + blocks - 1) / blocks * 8;
  if (channels <= 16) return with.template operator() < 16, scaled ? 4 : 6 > ();
  if (channels <= 24) return with.template operator() < 24, scaled ? 3 : 7 > ();
  if (channels <= 32) return with.template operator() < 32, scaled ? 2 : 4 > ();
  if (channels <= 48) return with.template operator() < 48, scaled ? 2 : 3 > ();
  return with.template operator() < 64, scaled ? 1 : 2 > ();
}

inline int64_t out_per_group(const Conv3dGeometry& g, bool transposed) {
  return transposed ? g.big_per_group() : g.small_per_group();
}

}  // namespace vox::cuda::conv::flat

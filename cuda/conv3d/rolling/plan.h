#pragma once

#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/rolling/plane.h>

// How the kernel cuts the product of plane.h into marches of blocks.
//
// Output depth j of a tile is the sum over planes v = j .. j + taps - 1, where plane v is input cell v + base
// along d. A block marches through the planes of a tile and keeps sums for `taps` depths, in slots. Depth j
// has slot j % taps, to which plane v adds its tap (v - slot) mod taps. After plane v, depth v - (taps - 1)
// is complete.
//
// The depths of all tiles, one after the other, are numbered; these numbers are called steps. Every block
// takes a piece of this sequence. A march that begins in the middle of a tile has taps - 1 planes that serve
// only the depths from there on, so pieces are cut such that the longest has as few planes as possible. A sum
// does not depend on where its march began.

namespace vox::cuda::conv::rolling {

struct Plan {
  static constexpr int most_blocks = 192;  // a bound, since the cuts are a kernel argument

  Product product;
  int64_t planes;  ///< of the longest piece
  int blocks;
  int64_t cuts[most_blocks + 1];  ///< block b has the steps cuts[b] .. cuts[b + 1] - 1
};

/// A tile that there is a kernel for: `tiles` of 64 positions for each of two warpgroups. It has as many
/// positions as registers hold sums for, because all weights are loaded once for each plane of a tile.
struct TileSize {
  int channels, taps_d, tiles;
};
inline constexpr TileSize tile_sizes[]{{16, 2, 4}, {32, 2, 4}, {48, 2, 3}, {16, 3, 4}, {24, 3, 4},
                                       {32, 3, 3}, {48, 3, 2}, {16, 5, 3}, {32, 5, 2}};
constexpr TileShape shape_of(const TileSize& t, int storage_bytes, int operand_bytes) {
  // Producers keep the addresses of a window's positions in registers.
  return {128 * t.tiles,          t.channels,         t.taps_d,
          2 * 16 / operand_bytes, storage_bytes == 2, t.tiles == 4 ? 800 : t.tiles == 3 ? 704 : 640};
}

/// Shared memory where results lie before they are stored: for each of 8 warps [channel of 8][position], with
/// a pitch that avoids bank conflicts, and the bias.
constexpr int results_bytes(const TileShape& t) { return 8 * (8 * (t.positions / 8 + 4) + t.channels) * 4; }

/// The product of conv3d, or of conv_transpose3d, with `shared` bytes of shared memory divided. Nothing if it
/// cannot be cut or does not fit.
std::optional<Product> cut_product(const Conv3dGeometry& g, bool transposed, const TileShape& tile,
                                   int64_t shared);

constexpr int64_t steps_of(const Product& p) {
  return int64_t{p.groups} * p.channel_blocks * p.tiles * p.d.cells;
}

/// The steps of a product, cut for a machine.
Plan cut_steps(const Product& p, const Machine& machine);

/// A plan and its tile. Nothing for an empty batch, or if there is no tile or no product.
struct Planned {
  TileShape tile;
  Plan plan;
};
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int storage_bytes,
                                 int operand_bytes, const Machine& machine);

/// The part of a piece of steps that lies in one tile.
struct March {
  int group, channel_block, tile;
  int first, end;              ///< depths that are stored
  int first_plane, end_plane;  ///< of the planes first .. end + taps - 2, those inside the input

  constexpr int planes() const { return end_plane > first_plane ? end_plane - first_plane : 0; }
};

/// The march that begins with this step and continues to `end`, or to the last depth of its tile.
constexpr March march_at(int64_t step, int64_t end, const Product& p) {
  const auto [group, channel_block, tile, first] = digits(step, {p.channel_blocks, p.tiles, p.d.cells});
  March m{group, channel_block, tile, first, 0, 0, 0};
  m.end = end - step < p.d.cells - first ? first + static_cast<int>(end - step) : p.d.cells;
  const int last = m.end + p.d.taps - 1, inside = p.d.in_cells - p.d.base;
  m.first_plane = first < -p.d.base ? -p.d.base : first;
  m.end_plane = last < inside ? last : inside;
  return m;
}

/// f(march) for each march of a block's piece of the depths, in order.
template <class F>
constexpr void for_each_march(const Plan& plan, int block, F f) {
  const int64_t end = plan.cuts[block + 1];
  for (int64_t step = plan.cuts[block]; step < end;) {
    const March m = march_at(step, end, plan.product);
    f(m);
    step += m.end - m.first;
  }
}

}  // namespace vox::cuda::conv::rolling

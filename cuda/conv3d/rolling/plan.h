#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::rolling {

// Note [The flat plane]
//   A convolution with stride 1 is a sum of products of shifted planes:
//
//     output[m, n] = bias[n] + sum over k of input[m, k] * weight[k, n]
//
//   Output cell j and tap t of an axis read input cell j + base + t * tap_step.
//
//   The cells of one depth, of all images, are numbered; these numbers are called positions. They run image
//   after image and row after row, a row being `pitch_w` positions long and an image `pitch_h` rows. An input
//   cell that tap (0, 0) reads gets the number of its output. Then tap (h, w) of position q reads the cell at
//   position
//
//     q + h * row_shift + w * column_shift
//
//   for every q. Rows and images must be padded so that no tap reads the next one's data. The zeros that end
//   a row also begin the next one, so the pitches of an unpadded conv_transpose3d equal its output's extents:
//   nothing is wasted. Outputs at positions beyond the cells of a row are dropped.

/// One axis of the product.
struct Axis {
  int in_cells;             ///< of the input
  int cells, taps;          ///< number of outputs, and of live taps
  int base, tap_step;       ///< output j and tap t read input cell j + base + t * tap_step
  int first_tap, tap_pace;  ///< tap t is number first_tap + t * tap_pace of the kernel
};

/// What a block computes at once: `positions` of the plane x `channels`, at `taps_d` depths, which one input
/// plane serves. k comes in k-blocks of `k_block_channels`, whose operands take 32 bytes.
struct TileShape {
  int positions, channels, taps_d;
  int k_block_channels;
  bool of_16_bits = false;  ///< the input has 16-bit elements
  int most_window = 640;    ///< the most positions that a window may have

  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

struct Product {
  Axis d, h, w;
  int batch, groups, in_per_group, out_per_group;
  int64_t in_channel, out_channel;  ///< elements: all cells of a channel
  Divisor pitch_w, pitch_h;
  int row_shift, column_shift;
  bool in_words = false;  ///< 16-bit input is read as words: rows_are_words(), and its address is aligned

  int tiles, channel_blocks;  // of the output

  // The sum: k-blocks of channels x groups of rows of taps. The input of one plane for one such group is a
  // `window` of the flat plane: a tile and what its taps reach beyond it.
  int k_blocks, row_groups;
  int rows;    ///< of taps in a group
  int window;  ///< positions

  // Shared memory: planes of a window, and stages of a chunk of taps' weights.
  int planes, stages, chunk;
};

/// Whether every pair of neighbouring positions whose first cell along w is even is either one aligned pair
/// of cells of an input row, or entirely outside. Then a pair is a word of two 16-bit numbers.
constexpr bool rows_are_words(const Product& p) {
  const int pitch = p.pitch_w.divisor;
  if (p.w.in_cells % 2 || pitch % 2) return false;
  return p.w.base % 2 == 0 || (p.w.base < 0 && pitch + p.w.base > p.w.in_cells);
}

/// A position of the flat plane.
struct Place {
  int image, h, w;
};
constexpr Place place_of(int position, const Product& p) {
  const auto [image, h, w] = digits(position, {p.pitch_h, p.pitch_w});
  return {image, h, w};
}

/// Taps of a window.
constexpr int taps_in(int row_group, const Product& p) {
  return std::min(p.rows, p.h.taps - row_group * p.rows) * p.w.taps;
}

/// The number of a tap in a kernel with these extents.
constexpr int64_t kernel_tap(const Product& p, int64_t kernel_h, int64_t kernel_w, int d, int h, int w) {
  const auto of = [](const Axis& a, int tap) { return a.first_tap + int64_t{tap} * a.tap_pace; };
  return (of(p.d, d) * kernel_h + of(p.h, h)) * kernel_w + of(p.w, w);
}

/// Bytes of shared memory.
inline int64_t plane_bytes(const Product& p) { return int64_t{p.window} * 32; }
inline int64_t tap_bytes(const TileShape& t) { return int64_t{t.taps_d} * t.channels * 32; }
inline int64_t shared_bytes(const Product& p, const TileShape& t) {
  return p.planes * plane_bytes(p) + p.stages * p.chunk * tap_bytes(t);
}

// ---- Marches ----------------------------------------------------------------------------------------------

// How the kernel cuts the product into marches of blocks.
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

/// The product cut into tiles, before shared memory is divided: planes, stages and chunk are 0. Nothing for a
/// stride, if taps along d are not `taps_d` or have a dilation, if a window is too large, or if numbers do
/// not fit their types.
std::optional<Product> cut_in_tiles(const Conv3dGeometry& g, bool transposed, const TileShape& tile);

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

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::flat {

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

/// What a block computes at once: `positions` of the plane x `depths` outputs along d x `channels`. One input
/// plane serves `taps_d` taps along d. k comes in k-blocks of `k_block_channels`, whose operands take 32
/// bytes.
struct TileShape {
  int positions, depths, channels, taps_d;
  int k_block_channels;
  bool of_16_bits = false;  ///< the input has 16-bit elements
  bool pairs = false;       ///< two taps at once: chunks are even, and weights take 16 bytes more
  int most_window = 640;    ///< the most positions that a window may have

  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

/// The tiles of kernel.cuh: as many depths as registers hold sums for, of the tensor cores and in f32.
constexpr TileShape tile_of(int channels, int depths, int taps_d) {
  return {256, depths, channels, taps_d, 8, false, true};
}
inline constexpr struct { int channels, depths; } tile_sizes[]{{16, 4}, {24, 3}, {32, 2}, {48, 2}, {64, 1}};

/// Shared memory beyond that of the product: zeros as long as a part of a tap's weights.
constexpr int zero_bytes(const TileShape& t) { return t.taps_d * t.channels * 16; }

struct Product {
  Axis d, h, w;
  int batch, groups, in_per_group, out_per_group;
  int64_t in_channel, out_channel;  ///< elements: all cells of a channel
  Divisor pitch_w, pitch_h;
  int row_shift, column_shift;
  bool in_words = false;  ///< 16-bit input is read as words: rows_are_words(), and its address is aligned

  // The output. Depths whose numbers have one remainder modulo the tap step read the same planes, so they are
  // blocked separately.
  int tiles, depth_blocks, channel_blocks;

  // The sum: k-blocks of channels x groups of taps_d taps along d x groups of rows of taps. The input of one
  // plane for one such group is a `window` of the flat plane: a tile and what its taps reach beyond it.
  int k_blocks, depth_groups, row_groups;
  int rows;    ///< of taps in a group
  int window;  ///< positions

  // Shared memory: planes of a window, and stages of a chunk of taps' weights.
  int planes, stages, chunk;

  constexpr int64_t jobs() const { return int64_t{groups} * depth_blocks * tiles * channel_blocks; }
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

/// A tile of some depths, and a block of channels.
struct Job {
  int channel_block, tile, group;
  int first_depth;  ///< the outputs are first_depth + j * (tap step of d)
  int depths;       ///< that exist; may be negative
};
constexpr Job job_at(int64_t number, int tile_depths, const Product& p) {
  const auto [group, block, tile, channel_block] =
      digits(number, {p.depth_blocks, p.tiles, p.channel_blocks});
  const int step = p.d.tap_step, first = block % step + block / step * tile_depths * step;
  return {channel_block, tile, group, first, std::min(tile_depths, (p.d.cells - first + step - 1) / step)};
}

/// The planes of a job that are inside the input and that an output needs. Plane q is input cell `cell + q *
/// (tap step of d)`.
struct Planes {
  int cell, first, end;
};
constexpr Planes planes_of(const Job& job, int depth_group, int taps_d, const Product& p) {
  const int step = p.d.tap_step, cell = job.first_depth + depth_group * taps_d * step + p.d.base;
  const int first = cell < 0 ? (step - 1 - cell) / step : 0;
  const int beyond = cell < p.d.in_cells ? (p.d.in_cells - 1 - cell) / step + 1 : 0;
  return {cell, first, job.depths > 0 ? std::min(job.depths + taps_d - 1, beyond) : 0};
}

/// The number of a tap in a kernel with these extents.
constexpr int64_t kernel_tap(const Product& p, int64_t kernel_h, int64_t kernel_w, int d, int h, int w) {
  const auto of = [](const Axis& a, int tap) { return a.first_tap + int64_t{tap} * a.tap_pace; };
  return (of(p.d, d) * kernel_h + of(p.h, h)) * kernel_w + of(p.w, w);
}

/// Bytes of shared memory.
inline int64_t plane_bytes(const Product& p) { return int64_t{p.window} * 32; }
inline int64_t tap_bytes(const TileShape& t) { return int64_t{t.taps_d} * t.channels * (t.pairs ? 48 : 32); }
inline int64_t shared_bytes(const Product& p, const TileShape& t) {
  return p.planes * plane_bytes(p) + p.stages * p.chunk * tap_bytes(t);
}

struct Axes {
  Axis d, h, w;
};
/// Nothing unless all strides are 1.
std::optional<Axes> axes_of(const Conv3dGeometry& g, bool transposed);

/// The product cut into tiles, before shared memory is divided: planes, stages and chunk are 0. Nothing if a
/// window is too large, or if numbers do not fit their types.
std::optional<Product> cut_in_tiles(const Conv3dGeometry& g, bool transposed, const Axes& axes,
                                    const TileShape& tile);

/// The same with `shared` bytes of shared memory divided; nothing also if it does not fit.
std::optional<Product> cut_product(const Conv3dGeometry& g, bool transposed, const Axes& axes,
                                   const TileShape& tile, int64_t shared);

/// The product for kernel.cuh with its tile. Nothing if it cannot be cut.
struct Planned {
  TileShape tile;
  Product product;
};
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, const Machine& machine);

/// Cycles of a wgmma with this many columns, for 64 rows and 32 bytes of k: measured.
constexpr int64_t instruction_cycles(int64_t columns) { return std::max(columns / 2, 16 + columns / 4); }

}  // namespace vox::cuda::conv::flat

#pragma once

#include <cstdint>
#include <optional>

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda {

// A convolution of unit steps as products of shifted planes.
//
//   output[m, n] = bias[n] + sum over k of input[m, k] * weight[k, n]
//
// Cell j and tap t of an axis read input cell j + base + t * tap_step and write output cell
// j * out_step + out_base: conv3d with stride 1, and each phase of conv_transpose3d with any stride
// (the outputs of one residue modulo it).
//
// The flat plane. Cells of one depth, of all images, are numbered image after image and row after row, a row
// being `pitch_w` positions long and an image `pitch_h` rows. Input cells that tap (0, 0) reads get the
// numbers of their outputs. Then tap (h, w) of position q is what lies at
//
//   q + h * row_shift + w * column_shift
//
// for every q, provided that rows and images are long enough for no tap to run from one into data of the
// next. The zeros that end a row begin the next one as well, so that an unpadded conv_transpose3d has
// pitches equal to its output's extents: nothing is wasted. Outputs at positions beyond the cells of a row
// are dropped.

/// One axis of the product.
struct FlatAxis {
  int in_cells;             ///< of the input
  int cells, taps;          ///< outputs, and taps that are alive
  int base, tap_step;       ///< where they read
  int out_step, out_base;   ///< where they write
  int first_tap, tap_pace;  ///< tap t is number first_tap + t * tap_pace of the kernel
};

/// What a block computes at once: `positions` of the plane x `depths` outputs along d x `channels`. One input
/// plane serves `taps_d` taps along d. k comes in slabs of `slab` channels, whose operands take 32 bytes for
/// each of the `parts` that a value is split into.
struct FlatTile {
  int positions, depths, channels, taps_d;
  int slab, parts;
  int most_window = 640;  ///< the most positions that a window may have
};

/// Division of n < 2^31 by multiplication: n / divisor == (n * multiplier) >> shift.
struct Divisor {
  int divisor = 1;
  uint32_t multiplier = uint32_t{1} << 31;
  int shift = 31;

  constexpr int quotient(int n) const {
    return static_cast<int>((uint64_t{static_cast<uint32_t>(n)} * multiplier) >> shift);
  }
};
Divisor divisor_of(int64_t d);

struct FlatProduct {
  FlatAxis d, h, w;
  int batch, groups, in_per_group, out_per_group;
  int64_t in_channel, out_channel;  ///< elements: all cells of a channel
  int out_h, out_w;                 ///< extents of the whole output
  Divisor pitch_w, pitch_h;
  int row_shift, column_shift;

  // What there is to do. Depths whose numbers have one remainder modulo the tap step read the same planes, so
  // they are blocked separately.
  int tiles, depth_blocks, channel_blocks;

  // The sum: slabs of channels x groups of taps_d taps along d x groups of rows of taps. The input of one
  // plane for one of them is a `window` of the flat plane, a tile and what its taps reach beyond it.
  int slabs, depth_groups, row_groups;
  int rows;    ///< of taps in a group
  int window;  ///< positions

  // Shared memory: planes of a window, and stages of a chunk of taps' weights.
  int planes, stages, chunk;

  constexpr int64_t jobs() const { return int64_t{groups} * depth_blocks * tiles * channel_blocks; }
};

/// Bytes of shared memory.
inline int64_t plane_bytes(const FlatProduct& p, const FlatTile& t) {
  return int64_t{p.window} * 32 * t.parts;
}
inline int64_t tap_bytes(const FlatTile& t) { return int64_t{t.taps_d} * t.channels * 32 * t.parts; }
inline int64_t shared_bytes(const FlatProduct& p, const FlatTile& t) {
  return p.planes * plane_bytes(p, t) + p.stages * p.chunk * tap_bytes(t);
}

/// The axes of the phase (residues of output cells modulo the stride; all 0 for conv3d). Some may have no
/// taps.
struct FlatAxes {
  FlatAxis d, h, w;
  bool dead() const { return d.taps == 0 || h.taps == 0 || w.taps == 0; }
};
FlatAxes flat_axes(const Conv3dGeometry& g, bool transposed, Triple phase);

/// The product cut into tiles, but for shared memory: planes, stages and chunk are 0. Nothing if a window
/// would be too large, or if numbers would not fit their types.
std::optional<FlatProduct> flat_cut(const Conv3dGeometry& g, bool transposed, const FlatAxes& axes,
                                    const FlatTile& tile);

/// The same in `shared` bytes of shared memory; nothing also if it does not fit.
std::optional<FlatProduct> flat_product(const Conv3dGeometry& g, bool transposed, const FlatAxes& axes,
                                        const FlatTile& tile, int64_t shared);

}  // namespace vox::cuda

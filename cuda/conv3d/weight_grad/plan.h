#pragma once

#include <cstdint>
#include <optional>

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::weight_grad {

// How kernel.cuh cuts a weight gradient into blocks of threads, and lays out their shared memory.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Rows of the product come in octets: 8 channels of big at one tap. Columns are channels of small. A slice is
// what one block keeps in registers: some octets of channels x some taps x up to 64 columns. A slab is what
// it sums over: a number of steps. A step is one coarse depth of a tile of coarse rows.
//
// Phases. Along an axis, tap k reads cell i * stride + t of big, t = k * dilation - padding, which is cell
// i + q of phase r, with t = q * stride + r. Phases that some tap reads are live; in shared memory each is a
// grid of its own, in which every tap is a constant shift.

constexpr int most_phases = 8;  // along an axis

struct PhasedAxis {
  int big, small, kernel, stride, padding, dilation;
  int tile, tiles;  ///< coarse cells in a tile (1 along D); tiles along the axis

  int phases;
  int residue[most_phases];
  int first[most_phases], span[most_phases];  ///< taps read cells i + first ... i + first + span - 1 of it
  int offset[most_phases];  ///< where it begins: a row, a column; along D the first of its span + 1 slots
  int extent;               ///< of all phases in shared memory: rows, columns; along D slots
  int low, reach;           ///< cells low ... low + tile + reach - 1 hold all phases' windows
};

/// Products of 64 rows that a warpgroup can hold, for each number of columns that has a kernel, ascending;
/// unused entries are zero. With split factors there are further accumulators.
struct ProductCounts {
  int of[4];
};
constexpr ProductCounts warpgroup_products(int columns, bool split) {
  if (columns <= 24) return {1, 4, 7};
  if (columns <= 32) return split ? ProductCounts{1, 4, 5} : ProductCounts{1, 4, 5, 7};
  if (columns <= 48) return split ? ProductCounts{1, 4} : ProductCounts{1, 4, 6};
  return split ? ProductCounts{1, 3} : ProductCounts{1, 3, 4};
}

struct Plan {
  PhasedAxis axis[3];
  int batch, groups, big_per_group, small_per_group;
  int64_t big_cells, small_cells;
  int taps;

  // Slices.
  int columns, column_blocks;    // channels of small in a block; blocks in a group
  int octets, octet_blocks;      // octets of channels of big in a block; blocks in a group
  int slice_taps, tap_blocks;    // taps in a block
  int first_products, products;  // of 64 rows: of the first warpgroup, of both
  int64_t slices, steps, slabs;  // steps of a slice, in all its slabs

  // Shared memory, in words of 4 bytes.
  int channel_pitch, slot_words;   // of big, [slot][channel][row][column]
  int parts;                       // of an element of small: 1, or 2 if it is split
  int plane_words;                 // of small, [position / 4][column, and one more][4 positions]
  int big_entries, small_entries;  // elements of a slot, of a tile of small, a channel
  bool deep;                       // a step reads a slot that an earlier one wrote
  int shared_bytes;

  /// Octets of rows.
  constexpr int octets_in_slice() const { return octets * slice_taps; }
  constexpr int tile_words() const { return small_entries / 4 * plane_words; }
  constexpr int64_t slice_floats() const { return int64_t{products} * 64 * columns; }
};

/// The plan for a geometry, or nothing if the kernel does not take it: its window does not fit in shared
/// memory, there are more than 8 live phases on an axis, or numbers exceed 32 bits. `split`: for factors that
/// are split in two.
std::optional<Plan> make_plan(const Conv3dGeometry& g, bool split);

}  // namespace vox::cuda::conv::weight_grad

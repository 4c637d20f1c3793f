#pragma once

#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/time.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::weight_grad {

// How kernel.cuh cuts a weight gradient into blocks of threads, and lays out their shared memory.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Rows of the product come in octets: 8 channels of big at one tap. Columns are channels of small. A slice is
// what one block keeps in registers: some octets of channels x some taps x up to 64 columns. A split is what
// it sums over: a number of steps. A step is one coarse depth of a tile of coarse rows.
//
// Phases. Along an axis, tap k reads cell i * stride + t of big, t = k * dilation - padding, which is cell
// i + q of phase r, with t = q * stride + r. Phases that some tap reads are live; in shared memory each is a
// grid of its own, in which every tap is a constant shift.
//
// Words. A word of shared memory is one TF32 number, or two neighbours of 16 bits. Taps shift rows by single
// numbers, so rows of 16 bits are there twice: as they are, for even shifts, and from their second number on.

/// What the tensor core multiplies: TF32 numbers; pairs of them, for f32 at `highest`; bf16 or f16.
enum class Factors { tf32, tf32x3, of_16_bits };

constexpr int most_phases = 8;  // along an axis

struct PhasedAxis {
  int big, small, kernel, stride, padding, dilation;
  int tile, tiles;  ///< coarse cells in a tile (1 along D); tiles along the axis

  int phases;
  int residue[most_phases];
  int first[most_phases], span[most_phases];  ///< taps read cells i + first ... i + first + span - 1 of it
  int offset[most_phases];  ///< where it begins: a row, a word; along D the first of its span + 1 slots
  int extent;               ///< of all phases in shared memory: rows, words; along D slots
  int low, reach;           ///< cells low ... low + tile + reach - 1 hold all phases' windows
};

/// The numbers of columns that have a kernel.
constexpr int column_counts[]{8, 16, 24, 32, 48, 64};

/// Products of 64 rows that a warpgroup can hold, for each number of columns that has a kernel, ascending;
/// unused entries are zero. With pairs of factors there are further accumulators.
struct ProductCounts {
  int of[4];
};
constexpr ProductCounts warpgroup_products(int columns, bool paired) {
  if (columns <= 24) return {1, 4, 7};
  if (columns <= 32) return paired ? ProductCounts{1, 4, 5} : ProductCounts{1, 4, 5, 7};
  if (columns <= 48) return paired ? ProductCounts{1, 4} : ProductCounts{1, 4, 6};
  return paired ? ProductCounts{1, 3} : ProductCounts{1, 3, 4};
}

struct Plan {
  PhasedAxis axis[3];
  int batch, groups, big_per_group, small_per_group;
  int64_t big_cells, small_cells;
  int taps;

  // Slices.
  int columns, column_blocks;     // channels of small in a block; blocks in a group
  int octets, octet_blocks;       // octets of channels of big in a block; blocks in a group
  int slice_taps, tap_blocks;     // taps in a block
  int first_products, products;   // of 64 rows: of the first warpgroup, of both
  int64_t slices, steps, splits;  // steps of a slice, in all its splits

  // Shared memory, in words of 4 bytes.
  int per_word;                    // numbers in a word
  int copy_words;                  // from a row to its shifted copy; 0: there is none
  int channel_pitch, slot_words;   // of big, [slot][channel][row][column]
  int parts;                       // of an element of small: 1, or 2 if factors are pairs
  int plane_words;                 // of small, [granule of positions][column, and one more][4 words]
  int across;                      // elements of big in a row of a slot, of all phases
  int big_entries, small_entries;  // elements of a slot, of a tile of small, a channel
  bool deep;                       // a step reads a slot that an earlier one wrote
  int shared_bytes;

  /// Octets of rows.
  constexpr int octets_in_slice() const { return octets * slice_taps; }
  constexpr int tile_words() const { return small_entries / (4 * per_word) * plane_words; }
  constexpr int64_t slice_floats() const { return int64_t{products} * 64 * columns; }
};

/// The plan for a geometry, or nothing if the kernel does not take it: its window does not fit in shared
/// memory, there are more than 8 live phases on an axis, or numbers exceed 32 bits.
std::optional<Plan> make_plan(const Conv3dGeometry& g, Factors factors);

Work work_of(const Plan& p);

// ---- Addresses --------------------------------------------------------------------------------------------

/// Which part of dweight a block computes.
struct Slice {
  int group, first_column, first_tap, first_octet;
};
constexpr Slice slice_of(const Plan& p, int64_t slice) {
  const auto [group, columns, taps, octets] = digits(slice, {p.column_blocks, p.tap_blocks, p.octet_blocks});
  return {group, columns * p.columns, taps * p.slice_taps, octets * p.octets};
}

/// A column of steps: the depths of one tile of coarse rows.
struct Column {
  int image, h, w;  // the first coarse cell
};
constexpr Column column_of(const Plan& p, int64_t i) {
  const auto [image, h, w] = digits(i, {p.axis[1].tiles, p.axis[2].tiles});
  return {image, h * p.axis[1].tile, w * p.axis[2].tile};
}

/// An element to load: where it is in its plane (negative: outside, so it is zero) and where it goes
/// (negative: nowhere), both in elements.
struct Entry {
  int from, to;
};

/// Element i of big, in the order of memory: neighbours along w are neighbours in the list. With a stride of
/// 1 along w, and words of two, every second one is the first of a word, in both memories.
constexpr Entry big_entry(const Plan& p, const Column& column, int i) {
  const PhasedAxis &h = p.axis[1], &w = p.axis[2];
  const int row = i / p.across, cell = i % p.across / w.phases + w.low, w_phase = i % p.across % w.phases;
  int h_phase = 0;
  while (h_phase + 1 < h.phases && row >= h.offset[h_phase + 1]) ++h_phase;
  const int y = (column.h + h.first[h_phase] + row - h.offset[h_phase]) * h.stride + h.residue[h_phase];
  const int x = (column.w + cell) * w.stride + w.residue[w_phase];
  const int to = cell - w.first[w_phase];
  return {
      within(y, h.big) && within(x, w.big) ? y * w.big + x : -1,
      within(to, w.tile + w.span[w_phase] - 1) ? (row * w.extent + w.offset[w_phase]) * p.per_word + to : -1};
}

/// Position `position` of a tile of small, at [granule][column, and one more][position].
constexpr Entry small_entry(const Plan& p, const Column& column, int position) {
  const PhasedAxis &h = p.axis[1], &w = p.axis[2];
  const int y = column.h + position / w.tile, x = column.w + position % w.tile, granule = 4 * p.per_word;
  return {y < h.small && x < w.small ? y * w.small + x : -1,
          position / granule * p.plane_words * p.per_word + position % granule};
}

/// Where the first row of coarse cells meets an octet of a slice's rows: at word `place` of the slot of plane
/// `plane` of a phase of the depth.
struct OctetPlace {
  int phase, plane, place;
};
constexpr OctetPlace place_of_octet(const Plan& p, const Slice& slice, int number) {
  const int octet = number < p.octets_in_slice() ? number : p.octets_in_slice() - 1;
  const int in_slice = slice.first_tap + octet % p.slice_taps,
            tap = in_slice < p.taps ? in_slice : p.taps - 1;
  const auto taps = digits(tap, {p.axis[1].kernel, p.axis[2].kernel});
  int phase[3]{}, shift[3]{};
  for (int i = 0; i < 3; ++i) {
    const PhasedAxis& a = p.axis[i];
    const int t = taps[i] * a.dilation - a.padding, r = (t % a.stride + a.stride) % a.stride;
    while (a.residue[phase[i]] != r) ++phase[i];
    shift[i] = (t - r) / a.stride - a.first[phase[i]];
  }
  const int row = p.axis[1].offset[phase[1]] + shift[1];
  return {phase[0], shift[0],
          octet / p.slice_taps * 8 * p.channel_pitch + row * p.axis[2].extent + p.axis[2].offset[phase[2]] +
              shift[2] / p.per_word + shift[2] % p.per_word * p.copy_words};
}

/// The slot of a phase's plane in a step.
constexpr int slot_of(const Plan& p, int phase, int plane, int step) {
  const PhasedAxis& depth = p.axis[0];
  return depth.offset[phase] + (step + plane) % (depth.span[phase] + 1);
}

}  // namespace vox::cuda::conv::weight_grad

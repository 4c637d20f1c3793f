#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/conv3d_lattice.h>

namespace vox::cuda::conv::mma {

// How kernel.cuh cuts conv3d and conv_transpose3d, and what it computes from that on the device. The host
// builds a Plan, and passes it by value.
//
// Note [One rule for every stride and dilation]
//   Along an axis the outputs fall into phases, each of which is a convolution without a dilation:
//
//     cell q of phase f is the output        f + q * out_step
//     tap m, 0 <= m < taps, reads input      first_in + (q * step + m) * unit
//
//   Outputs of a phase have the same taps (Note [Lattices] in ops/conv3d_lattice.h), and the inputs that they
//   read lie `unit` apart. So a dilation makes more phases, but no larger windows. `step` is 1 for
//   conv_transpose3d. A phase that no tap touches has taps = 0; its outputs are the bias.
//
// Note [Windows]
//   A block copies the inputs that its box of cells reads to shared memory, for all taps that read them. With
//   a step above 1, taps with the same remainder m % step read the same inputs, and others read none of
//   these. So the taps fall into classes, by their remainders along the three axes. Each class has a window
//   of its own, and acts as further input channels: position i of a window holds the input (q0 + i) * step +
//   remainder, in units, from first_in on. So in a window neighbouring cells are neighbours whatever the
//   stride is, and a tap is one constant shift, m / step, for all cells; along each axis and therefore in
//   all.

/// One axis, for all phases.
struct Axis {
  int in, out;  ///< cells of the input and of the output
  int kernel, stride, padding, dilation;
  int tap_pace;  ///< conv_transpose3d: from one tap that touches an output to the next
  int step, unit, out_step, phases, most_taps;
  int box, tiles;  ///< cells of a block, at most; such boxes in the largest phase
  int remainders;  ///< of taps modulo `step`
  int run;         ///< positions of a window
};

/// One axis of one phase.
struct Phase {
  int cells, first_in;
  int taps, first_tap, tap_step;  ///< tap m is tap first_tap + m * tap_step of the kernel
};
constexpr Phase phase_of(const Axis& a, bool transposed, int number) {
  Phase p{};
  p.cells = (a.out - 1 - number) / a.out_step + 1, p.tap_step = 1;
  if (!transposed) {
    p.taps = a.kernel, p.first_in = number * a.stride - a.padding;
    return p;
  }
  const auto [tap, cell] = first_touching_tap(number, a.kernel, a.stride, a.padding, a.dilation, a.tap_pace);
  if (tap == a.kernel) return p;
  const int later = (a.kernel - 1 - tap) / a.tap_pace;  // taps that read lower cells; the last is tap 0 here
  p.taps = later + 1, p.first_tap = tap + later * a.tap_pace, p.tap_step = -a.tap_pace;
  p.first_in = cell - later * a.unit;
  return p;
}

/// What a block computes at once: `rows` cells, in tiles of 16 by a warp, times `columns` output channels, in
/// tiles of 8.
struct TileShape {
  int m_tiles, n_tiles;  ///< of a warp, whose columns are those of the block

  static constexpr int warps = 4, threads = 32 * warps;
  constexpr int rows() const { return warps * m_tiles * 16; }
  constexpr int columns() const { return n_tiles * 8; }
  /// Registers of a thread. Split operands have three sets.
  constexpr int sums(bool split) const { return m_tiles * n_tiles * (split ? 12 : 4); }
  /// Blocks of a multiprocessor, for which there are registers.
  constexpr int most_resident(bool split) const { return sums(split) > 64 ? 2 : 3; }
  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

/// The tiles that there are kernels for.
inline constexpr TileShape tile_shapes[]{{4, 8}, {2, 8}, {4, 6}, {8, 4}, {4, 4}, {2, 4}, {8, 2}};
constexpr bool has_kernel(const TileShape& t, bool split) { return t.sums(split) <= (split ? 192 : 128); }

struct Plan {
  std::array<Axis, 3> axis;
  bool transposed;
  int batch, groups, in_per_group, out_per_group;
  int taps;      ///< of the kernel
  int box_n;     ///< images of a block
  int box_rows;  ///< its cells
  int columns;   ///< its output channels
  // Granules: 16 bytes of channels, 4 of 32 bits or 8 of 16 bits.
  int granules;             ///< of a cell in the copy of the input
  int k_granules;           ///< of a k-block
  int item_granules;        ///< of an item; a power of two
  int k_blocks;             ///< of a group's input channels
  int classes, slices;      ///< of taps; pairs of a k-block and a class, which have one window
  int swizzle, swizzle_of;  ///< see place_of
  int window_cells, window_bytes;
  int items;                     ///< most of a slice, an even number
  int stage_items, stage_bytes;  ///< of a stage of weights
  int item_bytes;                ///< its weights for all columns
  bool quads;  ///< rows 4 i to 4 i + 3 are neighbours in a multiple of 4 outputs, or do not exist
  int splits;  ///< blocks that share the sum of one box and its columns
  int column_blocks, blocks, tables_at, shared_bytes;
  Divisor of_block[9], of_windows[6], of_box[3], of_k_block, of_slice;  ///< radices of numbers below
};

/// What a block computes. Splits run fastest, then columns, then phases: blocks that read the same cells, and
/// those that write to the same lines, run at the same time.
struct Job {
  int n;                      ///< the first image
  std::array<int, 3> q;       ///< the first cell
  std::array<int, 3> number;  ///< of the phase
  int group, column_block, split;
};
constexpr Job job_of(const Plan& p, int block) {
  const auto [n, d, h, w, pd, ph, pw, group, column_block, split] = digits(block, p.of_block);
  return {n * p.box_n,  {d * p.axis[0].box, h * p.axis[1].box, w * p.axis[2].box},
          {pd, ph, pw}, group,
          column_block, split};
}

using Phases = std::array<Phase, 3>;

/// The number of the granule of the input, channels last, at a position of a class's window, without the
/// k-block; -1 if the cell is outside the input, or not needed. Position i of class c is number c *
/// window_cells
/// + i.
constexpr int input_at(const Plan& p, const Job& j, const Phases& f, int number) {
  const auto at = digits(number, p.of_windows);  // remainders along d, h, w; image; d, h, w
  if (j.n + at[3] >= p.batch) return -1;
  int granule = (j.n + at[3]) * p.groups + j.group;
  for (size_t i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    const int cell = f[i].first_in + ((j.q[i] + at[4 + i]) * a.step + at[i]) * a.unit;
    if (cell < 0 || cell >= a.in || at[4 + i] >= a.box + (f[i].taps - 1 - at[i]) / a.step) return -1;
    granule = granule * a.in + cell;
  }
  return granule * p.granules;
}

/// Where a row of the product has its window, for tap 0, and its output, of channel 0; -1 if it has none.
struct RowPlace {
  int position;
  int64_t output;
};
constexpr RowPlace row_at(const Plan& p, const Job& j, const Phases& f, int row) {
  if (row >= p.box_rows) return {0, -1};
  const auto at = digits(row, p.of_box);
  int position = at[0];
  int64_t cell = 0;
  bool exists = j.n + at[0] < p.batch;
  for (size_t i = 0; i < 3; ++i) {
    const int q = j.q[i] + at[i + 1];
    position = position * p.axis[i].run + at[i + 1];
    exists &= q < f[i].cells;
    cell = cell * p.axis[i].out + j.number[i] + q * p.axis[i].out_step;
  }
  const int64_t image = int64_t{j.n + at[0]} * p.groups + j.group;
  const int64_t out_cells = int64_t{p.axis[0].out} * p.axis[1].out * p.axis[2].out;
  return {position, exists ? image * p.out_per_group * out_cells + cell : -1};
}

/// The taps of a class along each axis: remainder + i * step, for i < count.
struct ClassTaps {
  std::array<int, 3> remainder, count;

  constexpr int taps() const { return count[0] * count[1] * count[2]; }
};
constexpr ClassTaps taps_of(const Plan& p, const Phases& f, int number) {
  const int of_h = p.axis[1].remainders, of_w = p.axis[2].remainders;
  ClassTaps c{{number / of_w / of_h, number / of_w % of_h, number % of_w}, {}};
  for (size_t i = 0; i < 3; ++i)
    c.count[i] = f[i].taps > 0 ? (f[i].taps - 1 - c.remainder[i]) / p.axis[i].step + 1 : 0;
  return c;
}

/// A factor of the products of a slice: a granule of its channels at a tap, or two that hold the parts of 8
/// channels. Two items are the k of an instruction.
struct Item {
  int window;   ///< the tap's shift in positions, times 8, plus the granule
  int weights;  ///< its number among the weights of the k-block; -1: zeros
};
constexpr Item item_at(const Plan& p, const Phases& f, const ClassTaps& c, int i) {
  const int items = c.taps() * p.k_granules / p.item_granules;
  // An odd number is filled up by the last item again, times zero: no result meets a number that it would
  // not.
  const int of = (i < items ? i : items - 1) * p.item_granules;
  const int all = p.of_k_block.quotient(of), granule = of - all * p.k_granules;
  const int at[3]{all / c.count[2] / c.count[1], all / c.count[2] % c.count[1], all % c.count[2]};
  int shift = 0, tap = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    const Axis& a = p.axis[axis];
    const int m = c.remainder[axis] + at[axis] * a.step;
    shift = shift * a.run + at[axis];
    tap = tap * a.kernel + f[axis].first_tap + m * f[axis].tap_step;
  }
  return {shift * 8 + granule, i < items ? (tap * p.k_granules + granule) / p.item_granules : -1};
}
/// Their number, with one that fills up an odd one.
constexpr int items_of(const Plan& p, const ClassTaps& c) {
  return (c.taps() * p.k_granules / p.item_granules + 1) / 2 * 2;
}

/// The bytes from the beginning of a window to a granule. Loads of eight neighbouring cells meet every bank
/// once, at any shift: an odd number of granules of a cell does that by itself; else granules change places
/// with the cell.
constexpr int place_of(const Plan& p, int position, int granule) {
  return position * p.k_granules * 16 + ((position << p.swizzle ^ granule << 4) & p.swizzle_of);
}

/// The block's part of its steps: a step is a slice and a stage of its items. Class 0 has most of them. Each
/// of `bands` has all slices (Note [Bands] in common/bands.cuh).
struct Steps {
  int of_slice, begin, end;
};
constexpr Steps steps_of(const Plan& p, const Job& j, const Phases& f, int bands = 1) {
  const int stages = ceil_div(items_of(p, taps_of(p, f, 0)), p.stage_items);
  const auto until = [&](int split) { return narrow(int64_t{stages} * p.slices * bands * split / p.splits); };
  return {stages, until(j.split), until(j.split + 1)};
}

struct Planned {
  TileShape tile;
  Plan plan;
  double cycles;  ///< estimated
};

/// Operands as they are in shared memory: the bytes of a number, and the parts of a weight. Numbers of parts
/// have two granules for 8 channels: of f32 numbers, and then of their high and of their low parts.
struct OperandKind {
  int bytes, weight_parts;

  constexpr bool split() const { return weight_parts > 1; }
  constexpr int item_granules() const { return split() ? 2 : 1; }
  friend bool operator==(const OperandKind&, const OperandKind&) = default;
};

/// The plan that takes the least time. Nothing for an empty batch, for kernels whose windows do not fit in
/// shared memory, or if numbers do not fit their types.
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, const OperandKind& operands,
                                 bool may_split, const Machine& machine);

}  // namespace vox::cuda::conv::mma

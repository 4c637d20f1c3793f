#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/mma/cells.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
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
  Divisor pace;    ///< input cells from a position of a window to the next
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
  /// Registers of a thread. Numbers of two parts have three sets.
  constexpr int sums(int parts) const { return m_tiles * n_tiles * (parts > 1 ? 12 : 4); }
  /// Blocks of a multiprocessor, for which there are registers.
  constexpr int most_resident(int parts) const { return sums(parts) > 64 ? 2 : 3; }
  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

/// The tiles that there are kernels for.
inline constexpr TileShape tile_shapes[]{{4, 8}, {2, 8}, {4, 6}, {8, 4}, {4, 4}, {2, 4}, {8, 2}};
constexpr bool has_kernel(const TileShape& t, int parts) { return t.sums(parts) <= (parts > 1 ? 192 : 128); }

struct Plan {
  std::array<Axis, 3> axis;
  bool transposed;
  int batch, groups, in_per_group, out_per_group;
  int taps;      ///< of the kernel
  int box_n;     ///< images of a block
  int box_rows;  ///< its cells
  int columns;   ///< its output channels
  // Granules: 16 bytes of channels, 8 of 16 bits or 4 of f32.
  int granules;         ///< of a cell in the copy of the input
  int k_granules;       ///< of a k-block
  int item_granules;    ///< of an item; a power of two
  int k_blocks;         ///< of a group's input channels
  int classes, slices;  ///< of taps; pairs of a k-block and a class, which have one window
  int window_cells, window_bytes;
  int items;                     ///< most of a slice, an even number
  int stage_items, stage_bytes;  ///< of a stage of weights
  int item_bytes;                ///< its weights for all columns
  bool quads;  ///< rows 4 i to 4 i + 3 are neighbours in a multiple of 4 outputs, or do not exist
  int splits;  ///< blocks that share the sum of one box and its columns
  int column_blocks, jobs, tables_at, shared_bytes;
  Divisor of_job[9], of_window[3], of_box[3], of_k_block, of_slice, of_stage;  ///< radices of numbers below
};

/// What a block computes at a time. Splits run fastest, then columns, then phases: blocks that read the same
/// cells, and those that write to the same lines, run at the same time.
struct Job {
  int n;                      ///< the first image
  std::array<int, 3> q;       ///< the first cell
  std::array<int, 3> number;  ///< of the phase
  int group, column_block, split;
};
constexpr Job job_of(const Plan& p, int number) {
  const auto [n, d, h, w, pd, ph, pw, group, column_block, split] = digits(number, p.of_job);
  return {n * p.box_n,  {d * p.axis[0].box, h * p.axis[1].box, w * p.axis[2].box},
          {pd, ph, pw}, group,
          column_block, split};
}

using Phases = std::array<Phase, 3>;

/// The taps of a class along each axis: remainder + i * step, for i < count.
struct ClassTaps {
  std::array<int, 3> remainder, count;

  constexpr int taps() const { return count[0] * count[1] * count[2]; }
};
constexpr ClassTaps taps_of(const Plan& p, const Phases& f, int number) {
  ClassTaps c{digits(number, {p.axis[1].remainders, p.axis[2].remainders}), {}};
  for (size_t i = 0; i < 3; ++i)
    c.count[i] = f[i].taps > 0 ? (f[i].taps - 1 - c.remainder[i]) / p.axis[i].step + 1 : 0;
  return c;
}

/// A position of a class's window, in cells of the copy of the input.
constexpr CellEntry window_cell(const Plan& p, int position) {
  const auto [n, d, h, w] = digits(position, p.of_window);
  const auto& [of_d, of_h, of_w] = p.axis;
  const int depth = n * p.groups * of_d.in + d * of_d.pace.divisor;
  return {Coordinates::of(n, d, h, w),
          (depth * of_h.in + h * of_h.pace.divisor) * of_w.in + w * of_w.pace.divisor};
}
/// Those that are inside the input, and needed.
constexpr CellRange inputs_of(const Plan& p, const Job& j, const Phases& f, const ClassTaps& c) {
  Existing exist[3]{};
  int64_t first = int64_t{j.n} * p.groups + j.group;
  for (size_t i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    const int begin = f[i].first_in + (j.q[i] * a.step + c.remainder[i]) * a.unit;
    exist[i] = existing(begin, a.in, a.box + c.count[i] - 1, a.pace);
    first = first * a.in + begin;
  }
  return range_of(std::min(p.box_n, p.batch - j.n) - 1, exist[0], exist[1], exist[2], first);
}

/// A row of the product: its output, of channel 0, and its position in a window, for tap 0.
struct Row {
  CellEntry output;
  int position;
};
constexpr Row row_at(const Plan& p, int number) {
  if (number >= p.box_rows) return {{Coordinates::beyond, 0}, 0};
  const auto [n, d, h, w] = digits(number, p.of_box);
  const auto& [of_d, of_h, of_w] = p.axis;
  const int depth = n * p.groups * p.out_per_group * of_d.out + d * of_d.out_step;
  return {
      {Coordinates::of(n, d, h, w), (depth * of_h.out + h * of_h.out_step) * of_w.out + w * of_w.out_step},
      ((n * of_d.run + d) * of_h.run + h) * of_w.run + w};
}
/// The rows that have an output; the first one's is the element of a channel of the group.
constexpr CellRange outputs_of(const Plan& p, const Job& j, const Phases& f, int channel) {
  Existing exist[3]{};
  int64_t first = (int64_t{j.n} * p.groups + j.group) * p.out_per_group + channel;
  for (size_t i = 0; i < 3; ++i) {
    exist[i] = {0, std::min(p.axis[i].box, f[i].cells - j.q[i]) - 1};
    first = first * p.axis[i].out + j.number[i] + j.q[i] * p.axis[i].out_step;
  }
  return range_of(std::min(p.box_n, p.batch - j.n) - 1, exist[0], exist[1], exist[2], first);
}

/// A factor of the products of a slice: 8 of its channels at a tap. They are a granule, or of two parts two,
/// f32 numbers that become their high and their low parts. Two items are the k of an instruction.
struct Item {
  int window;   ///< bytes from the first granule of a position to its own, at the tap's shift
  int weights;  ///< its number among the weights of the k-block; -1: zeros
};
constexpr Item item_at(const Plan& p, const Phases& f, const ClassTaps& c, int i) {
  const int items = c.taps() * p.k_granules / p.item_granules;
  // An odd number is filled up by the last item again, times zero: no result meets a number that it would
  // not.
  const int of = (i < items ? i : items - 1) * p.item_granules;
  const int all = p.of_k_block.quotient(of), granule = of - all * p.k_granules;
  const std::array<int, 3> at = digits(all, {c.count[1], c.count[2]});
  int shift = 0, tap = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    const Axis& a = p.axis[axis];
    const int m = c.remainder[axis] + at[axis] * a.step;
    shift = shift * a.run + at[axis];
    tap = tap * a.kernel + f[axis].first_tap + m * f[axis].tap_step;
  }
  return {16 * (granule * p.window_cells + shift),
          i < items ? (tap * p.k_granules + granule) / p.item_granules : -1};
}
/// Their number, with one that fills up an odd one.
constexpr int items_of(const Plan& p, const ClassTaps& c) {
  return (c.taps() * p.k_granules / p.item_granules + 1) / 2 * 2;
}

/// A job's part of the steps: a step is a slice and a stage of its items. Class 0 has most of them. Each
/// of `bands` has all slices (Note [Bands] in common/bands.cuh).
struct Steps {
  int of_slice, begin, end;
};
constexpr Steps steps_of(const Plan& p, const Job& j, int items_of_class_0, int bands = 1) {
  const int stages = p.of_stage.quotient(items_of_class_0 + p.stage_items - 1),
            all = stages * p.slices * bands;
  if (p.splits == 1) return {stages, 0, all};
  const auto until = [&](int split) { return narrow(int64_t{all} * split / p.splits); };
  return {stages, until(j.split), until(j.split + 1)};
}

/// Blocks that a multiprocessor with so much shared memory runs at once.
constexpr int resident_blocks(const Plan& p, const TileShape& tile, int parts, int64_t shared_bytes) {
  return narrow(std::clamp<int64_t>(shared_bytes / (p.shared_bytes + system_bytes_of_block), 1,
                                    tile.most_resident(parts)));
}

struct Planned {
  TileShape tile;
  Plan plan;
  double cycles;  ///< estimated, by which the plan is chosen; work.cpp makes them Work::products
};

/// The plan that takes the least time, for numbers of 16 bits, or of two such parts. Nothing for an empty
/// batch, for kernels whose windows do not fit in shared memory, or if numbers do not fit their types.
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int parts, bool may_split,
                                 const Machine& machine);

}  // namespace vox::cuda::conv::mma

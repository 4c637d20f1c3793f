#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/mma/cells.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/time.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::mma {

// How weight_grad.cuh cuts a weight gradient into blocks of threads, and lays out their shared memory.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Rows of the product are channels of small. A column is a channel of big at one tap; columns come in octets,
// 8 channels at a tap. The sum runs over coarse cells. A step multiplies those of a box, and a split is the
// steps that a block sums. A granule is 16 bytes: an octet of one cell, in both operands.
//
// A window is what a group of taps reads for a box. It holds every unit-th fine cell along an axis, where the
// unit divides the distances of coarse cells and of taps: so all of them are steps in the window.
//
// Boxes never end outside the coarse grid: the last one along an axis begins earlier, and the cells that it
// shares with the one before are zeros of small. Else an Inf of big would meet a zero of a coarse cell that
// does not exist, and become a NaN of a weight that it does not touch.

/// A block has `row_tiles` x 16 channels of small. A warp has sums for so many octets of columns, what its
/// registers hold, or for half as many.
constexpr int most_octets(int row_tiles) { return 28 / row_tiles; }
constexpr int fewer_octets(int row_tiles) { return ceil_div(most_octets(row_tiles), 2); }
/// `parts` numbers of 16 bits for each operand need further registers.
constexpr int most_row_tiles(int parts) { return parts == 1 ? 4 : 2; }

/// The axes batch, d, h and w. The batch is an axis of one tap.
struct WeightGradAxis {
  int big, small, stride = 1, padding = 0, dilation = 1, kernel = 1;
  int taps = 1;  ///< of a group
  int box = 1;   ///< coarse cells of a box

  constexpr int groups() const { return ceil_div(kernel, taps); }
  constexpr int boxes() const { return ceil_div(small, box); }
  int unit = 1, step = 1, tap_step = 1;  ///< fine cells; of a window, from a coarse cell or a tap to the next
  int extent = 1;                        ///< cells of a window
};

/// Where something begins along the axes.
struct GridPlace {
  int n, d, h, w;
};

struct WeightGradPlan {
  static constexpr int warps = 8, k = 16;  // of a block; cells of an instruction

  WeightGradAxis n, d, h, w;
  int groups, small_per_group, big_per_group;
  int row_tiles, row_blocks;       ///< of a block; blocks in a group
  int octets, octet_blocks;        ///< of channels of big in a block; blocks in a group
  int warp_octets, kernel_octets;  ///< octets of columns of a warp; those that its kernel has sums for
  int column_warps;                ///< that share the columns of a block
  int box_cells, window_cells;
  int phase_cells;                      ///< along w, cells that are `step` apart follow each other: a phase
  int window_pitch, small_pitch;        ///< granules from an octet of channels to the next
  int window_granules, stage_granules;  ///< of a part of a window; of a stage
  int jobs, steps, splits;
  int teams;                                                ///< of warps that share the cells of a box
  int k_steps;                                              ///< instructions that hold the cells of a box
  Divisor by_window[4], by_box[3], by_step[3], by_unit[3];  ///< d, h, phase, w; d, h, w; boxes; units

  constexpr int columns() const { return d.taps * h.taps * w.taps * octets; }  ///< octets of a block
  constexpr int64_t split_floats() const { return int64_t{jobs} * columns() * row_tiles * 128; }
  constexpr int window_row() const { return phase_cells * w.step; }

  /// Tables of the cells of windows and boxes, in shared memory before two stages.
  constexpr int table_bytes() const { return (8 * window_cells + 12 * k_steps * k + 15) / 16 * 16; }
  /// In the end, teams add up their sums there.
  constexpr int shared_bytes() const {
    const int team_sums = 16 * 32 * warps / 2 * kernel_octets * row_tiles;
    return std::max(table_bytes() + 2 * stage_granules * 16, teams > 1 ? team_sums : 0);
  }

  // ---- Positions in a window, in cells ----

  /// Of a cell `box` steps from a window's first one.
  constexpr int position(const GridPlace& box) const {
    return ((box.n * d.extent + box.d * d.step) * h.extent + box.h * h.step) * window_row() + box.w;
  }
  /// How much further a tap of the group reads.
  constexpr int tap_shift(int kd, int kh, int kw) const {
    const int across = kw * w.tap_step;
    return (kd * d.tap_step * h.extent + kh * h.tap_step) * window_row() + across % w.step * phase_cells +
           across / w.step;
  }
  /// The cell at a position; may be beyond the extent along w.
  constexpr GridPlace window_cell(int position) const {
    const auto [in, id, ih, phase, iw] = digits(position, by_window);
    return {in, id, ih, iw * w.step + phase};
  }
  constexpr GridPlace box_cell(int number) const {
    const auto [in, id, ih, iw] = digits(number, by_box);
    return {in, id, ih, iw};
  }
};

/// What a block computes: some rows, octets and taps of a group.
struct WeightGradJob {
  int group, first_row, first_octet;
  int tap_d, tap_h, tap_w;  ///< the first of the group of taps
};
constexpr WeightGradJob job_at(const WeightGradPlan& p, int number) {
  const auto [group, row, octet, kd, kh, kw] =
      digits(number, {p.row_blocks, p.octet_blocks, p.d.groups(), p.h.groups(), p.w.groups()});
  return {group, row * p.row_tiles * 16, octet * p.octets, kd * p.d.taps, kh * p.h.taps, kw * p.w.taps};
}

/// The coarse cells of a step: those from `begin` on are new, and the box begins at `from`.
struct StepBox {
  GridPlace from, begin;
};
constexpr StepBox box_at(const WeightGradPlan& p, int step) {
  const auto [in, id, ih, iw] = digits(step, p.by_step);
  const GridPlace begin{in * p.n.box, id * p.d.box, ih * p.h.box, iw * p.w.box};
  return {{std::min(begin.n, p.n.small - p.n.box), std::min(begin.d, p.d.small - p.d.box),
           std::min(begin.h, p.h.small - p.h.box), std::min(begin.w, p.w.small - p.w.box)},
          begin};
}

// ---- Cells to copy ----

constexpr CellEntry window_entry(const WeightGradPlan& p, int position) {
  const GridPlace c = p.window_cell(position);
  const int in_plane = c.h * p.h.unit * p.w.big + c.w * p.w.unit, plane = p.h.big * p.w.big;
  return {Coordinates::of(c.n, c.d, c.h, c.w),
          (c.n * p.groups * p.d.big + c.d * p.d.unit) * plane + in_plane};
}
/// The cells that fill up the last instruction do not exist.
constexpr CellEntry box_entry(const WeightGradPlan& p, int number) {
  if (number >= p.box_cells) return {Coordinates::beyond, 0};
  const GridPlace c = p.box_cell(number);
  return {Coordinates::of(c.n, c.d, c.h, c.w),
          ((c.n * p.groups * p.d.small + c.d) * p.h.small + c.h) * p.w.small + c.w};
}

constexpr CellRange big_cells(const WeightGradPlan& p, const WeightGradJob& job, const StepBox& box) {
  const int d = box.from.d * p.d.stride - p.d.padding + job.tap_d * p.d.dilation,
            h = box.from.h * p.h.stride - p.h.padding + job.tap_h * p.h.dilation,
            w = box.from.w * p.w.stride - p.w.padding + job.tap_w * p.w.dilation;
  const Existing of_d = existing(d, p.d.big, p.d.extent, p.by_unit[0]),
                 of_h = existing(h, p.h.big, p.h.extent, p.by_unit[1]),
                 of_w = existing(w, p.w.big, p.w.extent, p.by_unit[2]);
  const int64_t image = (int64_t{box.from.n} * p.groups + job.group) * p.d.big * p.h.big * p.w.big;
  return range_of(p.n.box - 1, of_d, of_h, of_w, image + (d * p.h.big + h) * p.w.big + w);
}
constexpr CellRange small_cells(const WeightGradPlan& p, const WeightGradJob& job, const StepBox& box) {
  const auto& [from, begin] = box;
  return {Coordinates::of(begin.n - from.n, begin.d - from.d, begin.h - from.h, begin.w - from.w),
          Coordinates::of(p.n.box - 1, p.d.box - 1, p.h.box - 1, p.w.box - 1),
          (int64_t{from.n} * p.groups + job.group) * p.d.small * p.h.small * p.w.small +
              (from.d * p.h.small + from.h) * p.w.small + from.w};
}

/// The octets of channels and the tap of a block's column: [tap][octet].
struct Column {
  int octet, d, h, w;
};
constexpr Column column_at(const WeightGradPlan& p, int number) {
  const auto [kd, kh, kw, octet] = digits(number, {p.h.taps, p.w.taps, p.octets});
  return {octet, kd, kh, kw};
}

/// The element of dweight that number `i` of a split is, or -1 for padding. [job][column][row tile][lane][4],
/// in the order of an instruction's result.
struct Weight {
  int64_t at;
  int small_channel, big_channel;  ///< of all groups
};
constexpr Weight weight_at(const WeightGradPlan& p, int64_t i) {
  const auto [job_number, number, tile, lane, e] =
      digits(static_cast<int>(i), {p.columns(), p.row_tiles, 32, 4});
  const WeightGradJob job = job_at(p, job_number);
  const Column column = column_at(p, number);
  const int row = job.first_row + tile * 16 + e / 2 * 8 + lane / 4,
            channel = (job.first_octet + column.octet) * 8 + lane % 4 * 2 + e % 2;
  const int kd = job.tap_d + column.d, kh = job.tap_h + column.h, kw = job.tap_w + column.w;
  const bool exists = row < p.small_per_group && channel < p.big_per_group && kd < p.d.kernel &&
                      kh < p.h.kernel && kw < p.w.kernel;
  const int small = job.group * p.small_per_group + row;
  const int64_t at = ((int64_t{small} * p.big_per_group + channel) * p.d.kernel + kd) * p.h.kernel + kh;
  return {exists ? at * p.w.kernel + kw : -1, small, job.group * p.big_per_group + channel};
}

/// The plan for numbers of `parts` parts, or nothing if the batch is empty or numbers exceed 32 bits. It does
/// not depend on the GPU, so neither do the bits of the sums.
std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, int parts);

/// Of the plan, by the numbers of a GPU.
Work work_of(const WeightGradPlan& p, int parts);

}  // namespace vox::cuda::conv::mma

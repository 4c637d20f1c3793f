#pragma once

#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::dense {

// The kernel argument of kernel.cuh and windows.cuh. The host builds it and passes it by value.

inline constexpr int most_phases = 4, most_taps = 16;  // of an axis
inline constexpr int most_joined = 4;
inline constexpr int splits[]{1, 2, 3, 4, 6, 8}, most_split = 8;  // blocks of a cluster
inline constexpr int row_bytes = 128;  // of channels: what a row of an operand holds in a stage
inline constexpr int warpgroups = 2;   // that multiply

/// One axis of the product. A cell q reads the input at q * in_step + offset, one offset for each tap of its
/// phase, and is the output q * out_step + first_out of its phase. conv3d has one phase. conv_transpose3d has
/// one for each remainder modulo the stride (Note [Phases] in strided/plan.h), and input and cells are the
/// coarse grid.
///
/// Phases along w whose taps have the same offsets are joined: the outputs of a cell are then `joined`
/// neighbours, each a further column of the product.
struct Axis {
  int in, out, cells;
  int in_step, out_step;
  int box, tiles;  ///< cells of a block; number of such blocks
  int kernel, phases;
  int first_out[most_phases];
  int first_tap[most_phases + 1];  ///< of each phase in the arrays below, and the end
  Divisor by_taps;                 ///< by their number, or 1
  int16_t offset[most_taps];
  int16_t tap[most_joined][most_taps];  ///< of the kernel; the first index is 0 for d and h

  constexpr int taps() const { return first_tap[phases]; }
};

struct Plan {
  Axis d, h, w;
  bool transposed;
  int joined;  ///< columns of a channel: 2^joined neighbours along w
  int batch, groups, in_per_group, out_per_group;
  int out_cells;           ///< of a channel
  int box_n, batch_tiles;  ///< samples of a block; with groups 1
  int box_rows;            ///< cells of a box: rows of the product that are used
  int window_w, window_h;  ///< cells of a TMA load: a box, in windows.cuh with a halo for the taps
  int chunks;              ///< of 128 bytes of input channels
  int column_tiles;        ///< of a group
  int split;               ///< blocks of a cluster, which share the taps and chunks of one tile
  bool quads;              ///< four outputs from a multiple of 4 on lie in one row, and so does their box
  int resident;            ///< blocks of a multiprocessor
  int stages, stage_bytes, shared_bytes;
  int window_bytes;  ///< windows.cuh: of a window, which is then not part of a stage
  int staged_pitch;  ///< words from one channel to the next where sums are staged
  int blocks;

  constexpr int taps() const { return d.taps() * h.taps() * w.taps(); }
  constexpr int phases() const { return d.phases * h.phases * w.phases; }
};

/// What a block computes. Blocks of a cluster follow each other; then columns run fastest, so that blocks
/// that read the same cells run at the same time.
struct Job {
  int rank;  // in the cluster
  int group, column_tile;
  int w, h, d, n;  // the first cell
  int phase_w, phase_h, phase_d;
};
constexpr Job job_of(const Plan& p, int block) {
  const auto [phase_d, phase_h, phase_w, n, d, h, w, group, column_tile, rank] =
      digits(block, {p.h.phases, p.w.phases, p.batch_tiles, p.d.tiles, p.h.tiles, p.w.tiles, p.groups,
                     p.column_tiles, p.split});
  return {rank,        group,       column_tile, w * p.w.box, h * p.h.box,
          d * p.d.box, n * p.box_n, phase_w,     phase_h,     phase_d};
}

/// The taps of a phase of an axis.
struct Taps {
  int first, count;
};
constexpr Taps taps_of(const Axis& axis, int phase) {
  return {axis.first_tap[phase], axis.first_tap[phase + 1] - axis.first_tap[phase]};
}

/// The block's part of its tile's steps; a step is a tap and a chunk of channels.
struct Steps {
  int begin, end;
};
constexpr Steps steps_of(const Plan& p, const Job& j) {
  const int all = taps_of(p.d, j.phase_d).count * taps_of(p.h, j.phase_h).count *
                  taps_of(p.w, j.phase_w).count * p.chunks;
  const auto until = [&](int rank) { return static_cast<int>(int64_t{all} * rank / p.split); };
  return {until(j.rank), until(j.rank + 1)};
}

/// What a block computes at once: warpgroups x `products` x 64 cells, times `columns`.
struct TileShape {
  int products, columns;

  constexpr int rows() const { return warpgroups * products * 64; }
  constexpr int sums() const { return products * columns / 2; }  ///< registers of a thread
  constexpr int stage_bytes() const { return (rows() + columns) * row_bytes; }
  /// Blocks of a multiprocessor: one stores while the other multiplies, if both have enough stages.
  constexpr int most_resident() const { return sums() <= 64 && stage_bytes() <= 36 * 1024 ? 2 : 1; }
  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

/// The tiles that there are kernels for.
inline constexpr TileShape tile_shapes[]{{2, 32}, {1, 64}, {2, 64}, {1, 128}, {2, 128}, {1, 160}};

/// The tile of windows.cuh: two slices of 16 x 16 cells, and 64 output channels.
inline constexpr TileShape windows_tile{4, 64};
inline constexpr int slice_edge = 16, slices = 2, window_slots = 2;

struct Planned {
  TileShape tile;
  Plan plan;
  double cycles;  ///< estimated
};

/// The plan with this tile and this split.
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                 const TileShape& tile, int split, const Machine& machine);

/// The plan that takes the least time on a machine, for numbers of so many bytes. Nothing for an empty batch,
/// for more than 16 taps along an axis, for strides above 8 (conv_transpose3d: 4), or if numbers do not fit
/// their types. Whether there is a plan does not depend on the number of multiprocessors.
std::optional<Planned> best_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                 const Machine& machine);

/// The plan of windows.cuh. Nothing for an empty batch, for strides, for kernels whose windows do not fit in
/// shared memory (5x5 along h and w do), or if numbers do not fit their types.
std::optional<Planned> make_windows_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                         const Machine& machine);

}  // namespace vox::cuda::conv::dense

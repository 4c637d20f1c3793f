#pragma once

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/time.h>

#include <cstdint>
#include <optional>

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::few_channels {

// How the kernels for groups of few channels (forward.cuh, weight_grad.cuh) cut a problem into blocks of
// threads, and lay out their shared memory.
//
// Along an axis, cell j of phase p and tap t read input cell j * in_step + base[p] + t * tap_step and write
// output cell j * out_step + p. conv3d has one phase, conv_transpose3d one for each remainder of its outputs
// modulo the stride. A block owns a tile of cells, in all phases, of some channels of one group. It reads a
// window of the input, which lies in shared memory as [channel][depth][column][row]: rows side by side,
// because a thread owns a run of them.

constexpr int short_run = 8;   // cells of a thread along h; 16 of one channel where that is faster
constexpr int strip_rows = 6;  // rows that a thread loads at once
constexpr int most_threads = 256;
constexpr int most_phases = 8;  // at most, along an axis
constexpr int most_slots = 32;  // taps of all phases, at most, along an axis

struct Axis {
  int in_cells, out_cells;
  int stride, padding, dilation, kernel;
  int phases, taps;  ///< number of phases; taps of the phase that has most
  int in_step, tap_step, out_step;
  int cells, tile, tiles;  ///< cells of the largest phase; cells in a tile; number of tiles
  int low;                 ///< a tile of cells from j on reads input cells from j * in_step + low on
  int window;              ///< number of input cells that a tile reads
  int base[most_phases];   ///< the phase's base, minus `low`
  int8_t tap[most_slots];  ///< [phase][tap]: the kernel's tap; -1 where a phase has fewer taps

  constexpr int slots() const { return phases * taps; }
};

/// A window of one tensor in shared memory, [channel][d][column][h]. Columns are the cells along w. Those
/// with the same remainder modulo the stride lie side by side, because neighbouring threads read them.
/// Threads load the window in strips of `strip_rows` rows.
struct Window {
  int d, h, w;
  int strips, pitch;  ///< pitch: floats from one column to the next; odd, so that columns use all banks
  int step, residue_columns;  ///< step: the stride; columns of each remainder modulo it
  Divisor by_w, by_strip, by_d, by_step;

  constexpr int columns() const { return step * residue_columns; }
  constexpr int plane() const { return columns() * pitch; }  ///< floats
  constexpr int channel() const { return d * plane(); }
  /// The distance in floats of what two cells read that lie `w` cells apart.
  constexpr int shift(int w) const { return (w % step * residue_columns + w / step) * pitch; }
};

struct Plan {
  Axis d, h, w;
  bool transposed;
  int64_t groups, in_cells, out_cells, taps;
  int in_per_group, out_per_group;
  int run;               ///< cells along h of a thread
  int outs, out_blocks;  ///< output channels of a thread; blocks of them in a group
  int channels;          ///< input channels that are in shared memory at once
  Window window;
  int column_shift[most_slots];  ///< offset in floats of what a tap along w reads from what tap 0 reads
  int weight_words;              ///< [channel][slot of d][of w][of h][out]
  int total_words;               ///< sums of previous chunks, if channels come in chunks
  int items;                     ///< of threads: column x run x depth x phase of h x phase of d
  // The digits of numbers, the first one (channel, phase of d, image) aside.
  Divisor by_slot[3];  ///< of a weight: slot of d, of w, of h
  Divisor by_item[5];  ///< phase of h, depth, run, cell along w, phase of w
  Divisor by_job[5];   ///< group, block of outputs, tile along d, h, w
  int jobs, shared_bytes;
};

/// Nothing if a window does not fit in shared memory, an axis has more phases or taps than the limits above,
/// or numbers exceed 32 bits.
std::optional<Plan> make_plan(const Conv3dGeometry& g, bool transposed);

/// Its products are all instructions, its loads the cycles of memory.
Work work_of(const Plan& p);

/// dweight[sc, bc, k] = sum over n, i of big[n, bc, i * stride - padding + k * dilation] * small[n, sc, i].
/// A row is a channel of big and a tap along d and w (and along h, unless `taps_h` taps share what a thread
/// reads). A thread has `rows` of them, and `outs` channels of small.
struct WeightGradPlan {
  Axis d, h, w;  ///< as for conv3d
  int64_t batch, groups, big_cells, small_cells, taps;
  int big_per_group, small_per_group;
  int taps_h;            ///< taps along h of a row: all, or 1
  int outs, out_blocks;  ///< channels of small that a thread has; blocks of them in a group
  int rows, row_blocks;  ///< in a group; sets of `rows_of_thread` in a block
  int rows_of_thread;
  int row_jobs, teams;  ///< blocks for all rows; warps of a block that share its cells
  int channels;         ///< of big in shared memory
  Window big, small;
  int items;  ///< of threads: column x run x depth
  Divisor by_column, by_run;
  int64_t tiles, splits, jobs;  ///< tiles of all images; a split has ceil(tiles / splits)
  int threads, shared_bytes;
  double cycles;  ///< predicted
};

std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g);

/// Whether the kernel for `taps` along h, with stride `step` and dilation 1, keeps what they read in
/// registers.
constexpr bool shares_column(int taps, int step) {
  return step == 1 ? taps >= 2 && taps <= 5 : step == 2 && taps >= 2 && taps <= 4;
}

/// Rows of a thread in the weight gradient: as many as it has registers for their sums.
constexpr int most_rows(int taps, int outs) {
  if (taps == 1) return 8;
  if (taps == 3) return outs < 4 ? 9 : 3;
  if (taps == 5) return outs < 4 ? 5 : 2;
  return outs < 4 ? 4 : 2;
}

}  // namespace vox::cuda::conv::few_channels

#pragma once

// Where the cells of a warpgroup lie in a plane (one depth) of the output of strided_wgmma.cuh.
//
// A coarse row of cells is one or two whole rows of the output, so cells that follow each other are at most
// three runs of contiguous elements, however short rows are. With two rows to a cell: the first row of the
// coarse row that is begun with, which may be cut; all up to the first row of the last one; and its second
// row. Runs that touch are one: whole coarse rows are a single run.

#include <voxgrad/cuda/conv3d/strided_wgmma_shared.cuh>

namespace vox::cuda::strided {

/// Elements of a plane. In shared memory element x of a channel is number x + shift, and the channel's
/// misalignment on top of it (strided_wgmma_rows.cuh).
struct Run {
  int first, length, shift;
};

struct Runs {
  Run run[3];  // of length 0 if there is none, or it is part of another
  int first_row, last_row;

  /// That of a cell's first (h = 0) or second row.
  __device__ __forceinline__ int shift(int row, int h, const StridedPlan& p) const {
    if (p.h.out_step == 1 || (h == 0 && row == first_row)) return run[0].shift;
    return h == 1 && row == last_row ? run[2].shift : run[1].shift;
  }
};

/// The runs of `cells` cells from a position on; `granule` elements are 16 bytes. Each run begins at a
/// granule of its own, with room for a misalignment behind it.
template <int granule>
__device__ __forceinline__ Runs runs_of(int position, int cells, const StridedPlan& p) {
  Place first = place_of(position, p), last = place_of(position + cells - 1, p);
  if (first.column >= p.w.cells) first = {first.row + 1, 0};
  if (last.row >= p.h.cells) last = {p.h.cells - 1, p.w.cells - 1};
  const bool any =
      first.row < last.row || (first.row == last.row && first.column <= min(last.column, p.w.cells - 1));
  const bool one_row = first.row == last.row;
  const int rows = p.h.out_step, width = p.w.out;
  const int begin = first.column * p.w.out_step, end = min((last.column + 1) * p.w.out_step, width);
  const int top = first.row * rows * width, bottom = last.row * rows * width;
  // What they would be if none touched.
  const int from[3]{top + begin, top + width + begin, bottom + width + (one_row ? begin : 0)};
  const int to[3]{one_row || rows == 1 ? bottom + end : top + width, bottom + end, bottom + width + end};
  const bool exists[3]{any, any && rows == 2 && !one_row, any && rows == 2 && last.row * 2 + 1 < p.h.out};
  Runs r{{}, first.row, last.row};
  int staged = 0;
  const auto place = [&](int i) {
    r.run[i] = {from[i], exists[i] ? to[i] - from[i] : 0, staged - from[i] / granule * granule};
  };
  const auto close = [&](int i) {
    if (exists[i]) staged = (to[i] + r.run[i].shift + 2 * granule - 2) / granule * granule;
  };
  const auto join = [&](int i, int next) {
    if (!exists[i] || !exists[next] || from[next] != from[i] + r.run[i].length) return false;
    r.run[next].shift = r.run[i].shift;
    r.run[i].length += r.run[next].length;
    r.run[next].length = 0;
    return true;
  };
  place(0), close(0);
  place(1);
  const bool joined = join(0, 1);
  close(1);
  place(2);
  if (joined || !exists[1])
    join(0, 2);
  else
    join(1, 2);
  return r;
}

}  // namespace vox::cuda::strided

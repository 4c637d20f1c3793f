#pragma once

#include <cstdint>
#include <optional>

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::dense {

// How weight_grad.cuh cuts a weight gradient into blocks of threads.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// A step multiplies 64 coarse cells, which form a box. A window is what a group of taps reads of 64 channels
// of big for a box: the taps of a group are neighbours along h and w, so their windows overlap, and are one
// in shared memory. A tile is what a block of threads computes: all taps of some groups x 64 channels of big
// x up to 256 columns, which are channels of small. A slab is what it sums over: a number of steps.

constexpr int box_cells = 64;       // of the coarse grid, in a step
constexpr int chunk_channels = 64;  // of 16 bits: the 128 bytes of a swizzled row

/// The shape of a tile that has a kernel.
struct WeightGradTile {
  int windows, group_h, group_w, columns;

  constexpr int group_taps() const { return group_h * group_w; }
  /// Products of 64 rows, which two warpgroups share.
  constexpr int products() const { return windows * group_taps(); }
  bool operator==(const WeightGradTile&) const = default;
};
constexpr WeightGradTile weight_grad_tiles[]{{2, 1, 1, 256}, {4, 1, 1, 128}, {8, 1, 1, 64},
                                             {4, 1, 1, 64},  {2, 1, 3, 128}, {1, 3, 3, 64}};

struct WeightGradPlan {
  WeightGradTile tile;
  int box[4];         // w, h, d, batch: powers of two, whose product is box_cells
  int boxes[4];       // along each of them
  int window[2];      // of a window, w and h; along d and batch it is as long as the box
  int slice_cell[4];  // where 16 cells of the box begin in a window, for its first tap
  int tap_cell[2];    // from a tap of a group to the next, w and h
  int window_bytes, stage_bytes, stages;
  int stride[3], padding[3], dilation[3], kernel[3];  // d, h, w
  int groups[3], chunks;                              // groups of taps, d, h, w; chunks of 64 channels of big
  int big_channels, small_channels, taps;
  int row_tiles, column_tiles, slabs;
  int64_t steps;  // of all slabs

  constexpr int windows() const { return groups[0] * groups[1] * groups[2] * chunks; }
  constexpr int64_t elements() const { return int64_t{taps} * small_channels * big_channels; }  // of dweight
};

/// The plan for a geometry, or nothing if the kernel does not take it: groups, a stride above 8, a coarse
/// grid that boxes do not fill, boxes beyond the copy engine's limits, or numbers beyond 32 bits.
std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, int multiprocessors);

}  // namespace vox::cuda::conv::dense

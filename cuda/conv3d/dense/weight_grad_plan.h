#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::dense {

// How weight_grad.cuh cuts a weight gradient into blocks of threads.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// A step multiplies 64 coarse cells, which form a box. A window is what a group of taps reads of 64 channels
// of big for a box: the taps of a group are neighbours along h and w, so their windows overlap, and are one
// in shared memory.
//
// A part is 64 channels of small x 64 of big at one tap. A tile of dweight is all parts of some rows of 64
// channels of small x some windows. A warpgroup multiplies neighbouring parts of a row at once: taps along w,
// or windows.
//
// The steps of all tiles, one tile after the other, are cut into shares of equal length, one for each block
// of threads. A split is what one block sums of a tile: a tile has a split, and a partial result, for each
// block that does some of its steps.

constexpr int box_cells = 64;       // of the coarse grid, in a step
constexpr int chunk_channels = 64;  // of 16 bits: the 128 bytes of a swizzled row

/// The shape of a tile that has a kernel.
struct WeightGradTile {
  int rows, windows, group_h, group_w;

  constexpr int group_taps() const { return group_h * group_w; }
  constexpr int parts() const { return rows * windows * group_taps(); }
  constexpr int warpgroups() const { return group_h > 1 ? group_h : 2; }
  constexpr int parts_at_once() const { return parts() / warpgroups(); }
  bool operator==(const WeightGradTile&) const = default;
};
constexpr WeightGradTile weight_grad_tiles[]{
    {2, 4, 1, 1}, {2, 2, 1, 1}, {1, 4, 1, 1}, {2, 1, 1, 3}, {1, 1, 3, 3}};

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
  int window_tiles, row_tiles;  // tiles of dweight, along windows and along rows
  int64_t steps;                // of a tile
  int64_t cycles;               // predicted
  int blocks, splits;           // of threads; splits of a tile at most

  constexpr int windows() const { return groups[0] * groups[1] * groups[2] * chunks; }
  constexpr int64_t elements() const { return int64_t{taps} * small_channels * big_channels; }  // of dweight
  constexpr int tiles() const { return window_tiles * row_tiles; }

  /// The first step of a block, counted over all tiles.
  constexpr int64_t begin_of(int block) const { return block * (tiles() * steps) / blocks; }
  /// The block that does this step.
  constexpr int block_of(int64_t step) const {
    return static_cast<int>(((step + 1) * blocks - 1) / (tiles() * steps));
  }
  constexpr int first_block(int tile) const { return block_of(tile * steps); }
  constexpr int splits_of(int tile) const { return block_of((tile + 1) * steps - 1) - first_block(tile) + 1; }
};

/// What a window holds: 64 channels of big, and the first tap of its group. Beyond the last window it is the
/// last one again, whose result is dropped.
struct Window {
  int first_channel, k_d, k_h, k_w;
  int w, h, d;  // where it begins, for the box at the origin
};
constexpr Window window_at(const WeightGradPlan& p, int index) {
  index = std::min(index, p.windows() - 1);
  const auto [d, h, w, chunk] = digits(index, {p.groups[1], p.groups[2], p.chunks});
  const int k_h = h * p.tile.group_h, k_w = w * p.tile.group_w;
  return {chunk * chunk_channels,
          d,
          k_h,
          k_w,
          k_w * p.dilation[2] - p.padding[2],
          k_h * p.dilation[1] - p.padding[1],
          d * p.dilation[0] - p.padding[0]};
}

/// The plan for a geometry, or nothing if the kernel does not take it: groups, a stride above 8, a coarse
/// grid that boxes do not fill, boxes beyond TMA's limits, or numbers beyond 32 bits.
std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, const Machine& machine);

}  // namespace vox::cuda::conv::dense

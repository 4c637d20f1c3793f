#pragma once

#include <cstdint>
#include <optional>

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::dense {

// How weight_grad.cuh cuts a weight gradient into blocks of threads.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// A block of rows is 64 channels of big at one tap. A tile is what a block of threads computes: some blocks
// of rows x up to 256 columns, which are channels of small. A step multiplies 64 coarse cells, which form a
// box. A slab is what a block of threads sums over: a number of steps.

constexpr int box_cells = 64;       // of the coarse grid, in a step
constexpr int chunk_channels = 64;  // of 16 bits: the 128 bytes of a swizzled row

/// The shape of a tile that has a kernel. A thread holds row_blocks / 2 * columns / 2 sums.
struct WeightGradTile {
  int row_blocks, columns;

  constexpr int chunks() const { return row_blocks + columns / chunk_channels; }
  constexpr int stage_bytes() const { return chunks() * box_cells * chunk_channels * 2; }
  constexpr int stages() const { return 200 * 1024 / stage_bytes(); }
  bool operator==(const WeightGradTile&) const = default;
};
constexpr WeightGradTile weight_grad_tiles[]{{2, 256}, {4, 128}, {8, 64}, {4, 64}};

struct WeightGradPlan {
  WeightGradTile tile;
  int box[4];    // w, h, d, batch: powers of two, whose product is box_cells
  int boxes[4];  // along each of them
  int stride[3], padding[3], dilation[3], kernel[3];  // d, h, w
  int taps, row_blocks, chunks;  // chunks: of big's channels, so row_blocks = taps * chunks
  int big_channels, small_channels;
  int row_tiles, column_tiles;
  int slabs;
  int64_t steps;  // of all slabs

  constexpr int64_t elements() const { return int64_t{taps} * small_channels * big_channels; }  // of dweight
};

/// The plan for a geometry, or nothing if the kernel does not take it: groups, a stride above 8, boxes beyond
/// the copy engine's limits, or numbers beyond 32 bits.
std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, int multiprocessors);

}  // namespace vox::cuda::conv::dense

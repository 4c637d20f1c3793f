#pragma once

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/machine.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv::patches {

// How the kernels for patches (kernel.cuh, weight_grad.cuh) see a convolution whose kernel equals its stride:
// a coarse cell and its patch of kernel.d x kernel.h x kernel.w fine cells touch each other and nothing else.
//
// A *row of big* is, for a channel of big, the strided view of the fine grid read by tap (kd, kh), indexed by
// coarse cell. Its number is (channel * kernel.d + kd) * kernel.h + kh, as in the weight. So the operation is
// a product of matrices for each image: of small (channels x cells) and big (rows x cells x kernel.w) with
// the weight (channels of small x rows of big x kernel.w).

constexpr int chunk = 8;         ///< coarse cells that lie together in both grids: 16 bytes of small
constexpr int block_warps = 8;   ///< of a weight gradient
constexpr int tile_bytes = 512;  ///< weights of an instruction: 16 x 16 numbers of 16 bits

// `parts` of a number: 1 of a 16-bit number; 2 or 3, if an f32 number is multiplied as the sum of so many
// bf16 numbers.

/// Groups of 8 rows of big that a warp of a weight gradient has sums for.
constexpr int row_groups(int parts) { return parts == 1 ? 4 : 2; }

/// Where coarse cells lie. Chunks are numbered through all images. An axis whose kernel is 1 is joined with
/// the next inner one: a kernel of 1 x 1 x 1 has one row per image.
struct Grids {
  int chunks;                           ///< of all images
  Divisor by_image, by_row, by_height;  ///< chunks of an image, chunks of a row, rows of a plane
  int64_t small_image, big_image;       ///< elements of an image
  int64_t small_cells, big_cells;       ///< of a channel
  int64_t plane_step, row_step;         ///< elements of big from a coarse plane or row to the next
  int64_t tap_d, tap_h;                 ///< elements of big from a tap to the next
  int kernel_d, kernel_h, kernel_w;
  int small_rows, big_rows;  ///< channels of small; rows of big

  /// The element of big at which a row begins.
  constexpr int64_t big_row(int row) const {
    const int by_h = row / kernel_h;
    return by_h / kernel_d * big_cells + by_h % kernel_d * tap_d + row % kernel_h * tap_h;
  }
};

/// Where the cells of a chunk begin in both grids, in the image's first row. For a chunk beyond the last, the
/// last one's.
struct Place {
  int64_t small, big;
  bool exists;
};
constexpr Place place_of(const Grids& p, int number) {
  const int last = std::min(number, p.chunks - 1);
  const int image = p.by_image.quotient(last), in_image = last - image * p.by_image.divisor;
  const int row = p.by_row.quotient(in_image), w = in_image - row * p.by_row.divisor;
  const int d = p.by_height.quotient(row), h = row - d * p.by_height.divisor;
  return {image * p.small_image + int64_t{in_image} * chunk,
          image * p.big_image + d * p.plane_step + h * p.row_step + int64_t{w} * (chunk * p.kernel_w),
          number < p.chunks};
}

/// conv3d and conv_transpose3d: out (m rows x cells) = weights (m x k) * in (k rows x cells).
struct Plan {
  Grids grids;
  bool transposed;
  int in_rows, out_rows;          ///< of big and small, or of small and big
  int64_t weight_in, weight_out;  ///< elements of the weight from a row of in or out to the next
  int k_steps;          ///< instructions for the sum, a multiple of those whose input is loaded ahead
  int m_tiles;          ///< of 16 rows of the product, of a block
  int m_blocks, parts;  ///< blocks that share the rows; warps of a block that share its rows
  int tiles;            ///< runs of cells of a warp, all

  int in_rows_of_step, out_rows_of_tile;  ///< 16; 8 of big if kernel.w is 2
};

/// A plan, and which kernel it is for.
struct Planned {
  Plan plan;
  int m_step;     ///< tiles of 16 rows that a warp has sums for
  int ahead;      ///< steps whose input is in registers
  bool resident;  ///< these are all
  int warps, shared_bytes;
};

/// The warps of a multiprocessor, which share its registers: with more sums and input each, fewer.
constexpr int most_warps(int m_step, int ahead, int parts) {
  if (parts == 3) return m_step == 1 ? 12 : 8;
  return m_step * ahead == 32 ? 8 : m_step > 1 ? 12 : 16;
}

/// Bytes of a block, if a multiprocessor is to have two; how many it has then, roughly.
inline constexpr int most_of_two = 72 << 10;
constexpr int blocks_at_once(const Planned& planned) { return planned.shared_bytes > most_of_two ? 1 : 2; }

/// Nothing if the geometry is not one of patches, or the weights of 16 rows exceed shared memory.
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int parts, const Machine& machine);

/// dweight (channels of small x rows of big x kernel.w), summed over chunks.
struct WeightGradPlan {
  Grids grids;
  int small_blocks, big_blocks;  ///< blocks that share the channels of small, and the rows of big
  int row_warps;                 ///< warps that share the rows of a block; the others share its cells
  int steps, splits;             ///< of 4 chunks; blocks that share the steps
  int64_t pitch, split_floats;   ///< floats from a channel of small to the next, and of a split's result
};
struct PlannedWeightGrad {
  WeightGradPlan plan;
  int n_tiles;  ///< of 8 channels of small
  int shared_bytes;
};

/// Steps that a warp of a weight gradient loads together.
constexpr int depth_of(int n_tiles, int parts) { return n_tiles <= 2 && parts == 1 ? 2 : 1; }

/// Blocks that a multiprocessor has registers for.
constexpr int split_blocks(int n_tiles, int parts) {
  if (parts == 3) return n_tiles <= 2 ? 2 : 1;
  return n_tiles == 1 ? 3 : n_tiles <= 4 ? 2 : 1;
}

std::optional<PlannedWeightGrad> make_weight_grad_plan(const Conv3dGeometry& g, int parts);

}  // namespace vox::cuda::conv::patches

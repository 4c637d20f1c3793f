#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>

#include <algorithm>
#include <limits>

namespace vox::cuda::conv::dense {

namespace {

constexpr int64_t most_int = std::numeric_limits<int>::max();
constexpr int64_t workspace_limit = 64 << 20;  // of the slabs' results, unless one slab needs more

bool moderate(const Conv3dGeometry& g) {
  if (g.groups != 1 || g.batch == 0 || g.taps() > 512) return false;
  for (int64_t axis = 0; axis < 3; ++axis) {
    if (g.stride[axis] > 8 || g.dilation[axis] > 1024 || g.padding[axis] > 1024 || g.kernel[axis] > 64)
      return false;
    if (g.big[axis] > most_int / 16 || g.small[axis] > most_int / 16) return false;
  }
  const int64_t channels = std::max(g.big_channels, g.small_channels) + chunk_channels;
  return g.batch * channels * std::max(g.big_cells(), g.small_cells()) <= most_int &&
         g.taps() * (g.big_channels + chunk_channels) * (g.small_channels + chunk_channels) <= most_int;
}

/// The box of 64 cells that needs the fewest steps; among those the longest along w.
void choose_box(const Conv3dGeometry& g, WeightGradPlan& p) {
  const int64_t size[4]{g.small.w, g.small.h, g.small.d, g.batch};
  const int64_t stride[4]{g.stride.w, g.stride.h, g.stride.d, 1};
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int w = box_cells; w >= 1; w /= 2)
    for (int h = box_cells / w; h >= 1; h /= 2)
      for (int d = box_cells / w / h; d >= 1; d /= 2) {
        const int box[4]{w, h, d, box_cells / w / h / d};
        int64_t steps = 1;
        bool fits = true;  // the copy engine's boxes have 256 elements at most along an axis
        for (int axis = 0; axis < 4; ++axis) {
          steps *= ceil_div(size[axis], int64_t{box[axis]});
          fits = fits && box[axis] * stride[axis] <= 256;
        }
        if (!fits || steps >= best) continue;
        best = steps;
        std::copy_n(box, 4, p.box);
        for (int axis = 0; axis < 4; ++axis) p.boxes[axis] = narrow(ceil_div(size[axis], int64_t{box[axis]}));
      }
  p.steps = best;
}

/// The time of a tile's step: of its products, or of what it loads, in cycles.
int64_t step_cycles(const WeightGradTile& tile) {
  const int64_t products = int64_t{tile.row_blocks} * tile.columns * box_cells / 64;  // 8192 products a cycle
  const int64_t bytes = tile.stage_bytes() / 24;                                      // of the L2 cache
  return std::max(products, bytes);
}

}  // namespace

std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, int multiprocessors) {
  if (!moderate(g)) return std::nullopt;
  WeightGradPlan p{};
  choose_box(g, p);
  for (int axis = 0; axis < 3; ++axis) {
    p.stride[axis] = narrow(g.stride[axis]), p.padding[axis] = narrow(g.padding[axis]);
    p.dilation[axis] = narrow(g.dilation[axis]), p.kernel[axis] = narrow(g.kernel[axis]);
  }
  p.taps = narrow(g.taps());
  p.big_channels = narrow(g.big_channels), p.small_channels = narrow(g.small_channels);
  p.chunks = narrow(ceil_div(g.big_channels, int64_t{chunk_channels}));
  p.row_blocks = p.taps * p.chunks;

  constexpr int64_t filling = 3000;  // cycles in which a block of threads begins and ends
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const WeightGradTile& tile : weight_grad_tiles) {
    if (tile.columns > chunk_channels && p.small_channels <= tile.columns / 2) continue;
    const int row_tiles = ceil_div(p.row_blocks, tile.row_blocks),
              column_tiles = ceil_div(p.small_channels, tile.columns);
    const int64_t tiles = int64_t{row_tiles} * column_tiles;
    const int64_t most_slabs = std::max<int64_t>(workspace_limit / (4 * p.elements()), 1);
    for (int64_t slabs = 1; slabs <= std::min({p.steps, most_slabs, int64_t{256}}); ++slabs) {
      const int64_t waves = ceil_div(tiles * slabs, int64_t{multiprocessors});
      // The results of the slabs are written and read again: 4 bytes each, at 1500 bytes a cycle.
      const int64_t time =
          waves * (ceil_div(p.steps, slabs) * step_cycles(tile) + filling) + 8 * slabs * p.elements() / 1500;
      if (time >= least) continue;
      least = time;
      p.tile = tile, p.row_tiles = row_tiles, p.column_tiles = column_tiles, p.slabs = narrow(slabs);
    }
  }
  // Slabs of equal length, none of them empty.
  const int64_t steps = ceil_div(p.steps, int64_t{p.slabs});
  p.slabs = narrow(ceil_div(p.steps, steps));
  return p;
}

}  // namespace vox::cuda::conv::dense

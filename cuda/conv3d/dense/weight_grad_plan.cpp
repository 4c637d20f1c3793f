#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace vox::cuda::conv::dense {

namespace {

constexpr int64_t most_int = std::numeric_limits<int>::max();
constexpr int64_t workspace_limit = 64 << 20;  // of the partial results, unless one slab needs more

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

constexpr int64_t most_stage_bytes = 200 * 1024;
constexpr int fewest_stages = 3, most_stages = 8;

/// The box of 64 cells that needs the fewest steps, and among those has the smallest windows; false if none
/// is possible. The 16 cells of an instruction lie one after the other in a window. Boxes end where the
/// coarse grid does: a cell beyond it is a zero of small, but may be a cell of big, whose Inf or NaN would
/// spread. (Samples beyond the batch are zeros of both.)
bool choose_box(const Conv3dGeometry& g, WeightGradPlan& p) {
  const WeightGradTile& tile = p.tile;
  if (tile.group_w > 1 && (g.stride.w > 1 || g.kernel.w < tile.group_w)) return false;
  if (tile.group_h > 1 && (g.stride.h > 1 || g.kernel.h < tile.group_h)) return false;
  const int64_t size[4]{g.small.w, g.small.h, g.small.d, g.batch};
  const int64_t stride[4]{g.stride.w, g.stride.h, g.stride.d, 1};
  int64_t best = std::numeric_limits<int64_t>::max(), least = best;
  for (int w = box_cells; w >= (tile.group_w > 1 ? 16 : 1); w /= 2)
    for (int h = box_cells / w; h >= 1; h /= 2)
      for (int d = box_cells / w / h; d >= 1; d /= 2) {
        const int box[4]{w, h, d, box_cells / w / h / d};
        int64_t steps = 1;
        bool fits = box[3] < 2 * g.batch;
        for (int axis = 0; axis < 4; ++axis) {
          steps *= ceil_div(size[axis], int64_t{box[axis]});
          // The copy engine's boxes have 256 elements at most along an axis.
          fits = fits && box[axis] * stride[axis] <= 256 && (axis == 3 || size[axis] % box[axis] == 0);
        }
        const int64_t window_w = w + (tile.group_w - 1) * g.dilation.w,
                      window_h = h + (tile.group_h - 1) * g.dilation.h;
        const int64_t cells = window_w * window_h * box[2] * box[3];
        if (!fits || cells > 192 || std::pair(steps, cells) >= std::pair(best, least)) continue;
        best = steps, least = cells;
        std::copy_n(box, 4, p.box);
        for (int axis = 0; axis < 4; ++axis) p.boxes[axis] = narrow(ceil_div(size[axis], int64_t{box[axis]}));
        p.window[0] = narrow(window_w), p.window[1] = narrow(window_h);
        p.window_bytes = narrow(ceil_div(cells * 128, int64_t{1024}) * 1024);
      }
  if (best == std::numeric_limits<int64_t>::max()) return false;
  p.steps = best;
  for (int i = 0; i < 4; ++i) {
    const int w = 16 * i % p.box[0], rows = 16 * i / p.box[0], h = rows % p.box[1], planes = rows / p.box[1];
    p.slice_cell[i] = tile.group_taps() == 1 ? 16 * i : (planes * p.window[1] + h) * p.window[0] + w;
  }
  p.tap_cell[0] = narrow(g.dilation.w), p.tap_cell[1] = narrow(g.dilation.h * p.window[0]);
  return true;
}

/// The time of a tile's step: of its products, or of what it loads, in cycles.
int64_t step_cycles(const WeightGradPlan& p) {
  const int64_t products = int64_t{p.tile.parts()} * 128;  // 64 x 64 x 64 in 128 cycles
  const int64_t bytes = p.stage_bytes / 24;                // of the L2 cache
  return std::max(products, bytes);
}

/// Chooses the number of blocks: as many as run at once, or fewer, or one for each tile. Returns the time in
/// cycles.
int64_t cut_into_shares(WeightGradPlan& p, int multiprocessors) {
  constexpr int64_t filling = 3000;  // cycles in which a block begins a tile and ends it
  const int64_t tiles = p.tiles(), steps = tiles * p.steps, step = step_cycles(p);
  int64_t least = std::numeric_limits<int64_t>::max();
  const auto consider = [&](int64_t blocks, int64_t slabs, int64_t tiles_of_block, int64_t partials) {
    if (slabs > 1 && slabs * p.elements() * 4 > workspace_limit) return;
    const int64_t waves = ceil_div(blocks, int64_t{multiprocessors});
    // Partial results are written and read again: 4 bytes each, at 1500 bytes a cycle.
    const int64_t time = waves * (ceil_div(steps, blocks) * step + tiles_of_block * filling) +
                         8 * p.elements() * partials / tiles / 1500;
    if (time >= least) return;
    least = time, p.blocks = narrow(blocks), p.slabs = narrow(slabs);
  };
  for (int64_t blocks = 1; blocks <= std::min(steps, int64_t{multiprocessors}); ++blocks) {
    if (blocks % tiles == 0)
      consider(blocks, blocks / tiles, 1, blocks);
    else if (tiles % blocks == 0)
      consider(blocks, 1, tiles / blocks, tiles);
    else
      consider(blocks, std::min(p.steps, blocks / tiles + 2), tiles / blocks + 2, tiles + blocks);
  }
  consider(tiles, 1, 1, tiles);
  return least;
}

}  // namespace

std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, int multiprocessors) {
  if (!moderate(g)) return std::nullopt;
  std::optional<WeightGradPlan> best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const WeightGradTile& tile : weight_grad_tiles) {
    WeightGradPlan p{};
    p.tile = tile;
    if (tile.rows > 1 && g.small_channels <= chunk_channels) continue;
    if (!choose_box(g, p)) continue;
    for (int axis = 0; axis < 3; ++axis) {
      p.stride[axis] = narrow(g.stride[axis]), p.padding[axis] = narrow(g.padding[axis]);
      p.dilation[axis] = narrow(g.dilation[axis]), p.kernel[axis] = narrow(g.kernel[axis]);
    }
    p.taps = narrow(g.taps());
    p.big_channels = narrow(g.big_channels), p.small_channels = narrow(g.small_channels);
    p.groups[0] = p.kernel[0];
    p.groups[1] = ceil_div(p.kernel[1], tile.group_h), p.groups[2] = ceil_div(p.kernel[2], tile.group_w);
    p.chunks = ceil_div(p.big_channels, chunk_channels);
    p.window_tiles = ceil_div(p.windows(), tile.windows);
    p.row_tiles = ceil_div(p.small_channels, tile.rows * chunk_channels);
    p.stage_bytes = tile.windows * p.window_bytes + tile.rows * chunk_channels * box_cells * 2;
    p.stages = narrow(std::min<int64_t>(most_stage_bytes / p.stage_bytes, most_stages));
    if (p.stages < fewest_stages) continue;
    if (const int64_t time = cut_into_shares(p, multiprocessors); time < least) least = time, best = p;
  }
  return best;
}

}  // namespace vox::cuda::conv::dense

#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>

#include <algorithm>
#include <array>
#include <utility>

namespace vox::cuda::conv::dense {

namespace {

constexpr int64_t workspace_limit = 64 << 20;  // of the partial results, unless one split needs more
constexpr int64_t most_stage_bytes = 200 * 1024;
constexpr int fewest_stages = 3, most_stages = 8, most_window_cells = 192;

/// Whether numbers fit their types.
bool moderate(const Conv3dGeometry& g) {
  if (g.groups != 1 || g.batch == 0 || g.taps() > 512) return false;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (g.stride[axis] > 8 || g.kernel[axis] > 64 || !all_fit({g.dilation[axis], g.padding[axis]}, 1024) ||
        !all_fit({g.big[axis], g.small[axis]}, most_int / 16))
      return false;
  const int64_t big = g.big_channels + chunk_channels, small = g.small_channels + chunk_channels;
  return product_fits({g.batch, std::max(big, small), std::max(g.big_cells(), g.small_cells())}) &&
         product_fits({g.taps(), big, small});
}

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
  const int64_t halo_w = (tile.group_w - 1) * g.dilation.w, halo_h = (tile.group_h - 1) * g.dilation.h;
  Least<std::array<int, 4>, int64_t> best;
  for (int w = box_cells; w >= (tile.group_w > 1 ? 16 : 1); w /= 2)
    for (int h = box_cells / w; h >= 1; h /= 2)
      for (int d = box_cells / w / h; d >= 1; d /= 2) {
        const std::array box{w, h, d, box_cells / w / h / d};
        int64_t steps = 1;
        bool fits = box[3] < 2 * g.batch;
        for (size_t axis = 0; axis < 4; ++axis) {
          steps *= ceil_div(size[axis], box[axis]);
          // TMA loads cover 256 elements at most along an axis.
          fits = fits && box[axis] * stride[axis] <= 256 && (axis == 3 || size[axis] % box[axis] == 0);
        }
        const int64_t cells = (w + halo_w) * (h + halo_h) * box[2] * box[3];
        if (fits && cells <= most_window_cells) best.offer(box, steps * (most_window_cells + 1) + cells);
      }
  if (!best.best()) return false;
  p.steps = 1;
  for (size_t axis = 0; axis < 4; ++axis) {
    p.box[axis] = (*best.best())[axis];
    p.boxes[axis] = narrow(ceil_div(size[axis], p.box[axis]));
    p.steps *= p.boxes[axis];
  }
  p.window[0] = narrow(p.box[0] + halo_w), p.window[1] = narrow(p.box[1] + halo_h);
  p.window_bytes =
      ceil_div(p.window[0] * p.window[1] * p.box[2] * p.box[3] * chunk_channels * 2, 1024) * 1024;
  for (int i = 0; i < 4; ++i) {
    const auto [planes, h, w] = digits(16 * i, {p.box[1], p.box[0]});
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
int64_t cut_into_shares(WeightGradPlan& p, const Machine& machine) {
  constexpr int64_t tile_cycles = 3000;  // in which a block begins a tile and ends it
  const int64_t tiles = p.tiles(), steps = tiles * p.steps, step = step_cycles(p);
  Least<std::pair<int64_t, int64_t>, int64_t> best;
  const auto consider = [&](int64_t blocks, int64_t splits, int64_t tiles_of_block, int64_t partials) {
    if (splits > 1 && splits * p.elements() * 4 > workspace_limit) return;
    const int64_t waves = ceil_div(blocks, machine.multiprocessors);
    // Partial results are written and read again: 4 bytes each, at 1500 bytes a cycle.
    best.offer({blocks, splits}, waves * (ceil_div(steps, blocks) * step + tiles_of_block * tile_cycles) +
                                     8 * p.elements() * partials / tiles / 1500);
  };
  for (int64_t blocks = 1; blocks <= std::min<int64_t>(steps, machine.multiprocessors); ++blocks) {
    if (blocks % tiles == 0)
      consider(blocks, blocks / tiles, 1, blocks);
    else if (tiles % blocks == 0)
      consider(blocks, 1, tiles / blocks, tiles);
    else
      consider(blocks, std::min(p.steps, blocks / tiles + 2), tiles / blocks + 2, tiles + blocks);
  }
  consider(tiles, 1, 1, tiles);
  p.blocks = narrow(best.best()->first), p.splits = narrow(best.best()->second);
  return best.time();
}

}  // namespace

std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, const Machine& machine) {
  if (!moderate(g)) return std::nullopt;
  Least<WeightGradPlan, int64_t> best;
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
    p.cycles = cut_into_shares(p, machine);
    best.offer(p, p.cycles);
  }
  return best.best();
}

}  // namespace vox::cuda::conv::dense

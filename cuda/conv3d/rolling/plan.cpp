#include <voxgrad/cuda/conv3d/rolling/plan.h>

#include <algorithm>
#include <ranges>

namespace vox::cuda::conv::rolling {

namespace {

/// One plane more than there are loading warps, if four chunks of at least four taps fit beside them: a warp
/// takes long for a plane, so many planes must be in flight. Chunks of a window are of equal size.
bool divide_for_march(flat::Product& p, const flat::TileShape& tile, int64_t shared) {
  const int64_t taps = int64_t{p.rows} * p.w.taps, plane = plane_bytes(p, tile), tap = tap_bytes(tile);
  for (int64_t planes = 8; planes >= 2; --planes) {
    const int64_t left = shared - planes * plane;
    if (left <= 0) continue;
    const int64_t most = std::min(left / (4 * tap), taps);
    if (most < (planes > 4 ? std::min<int64_t>(taps, 4) : 1)) continue;
    const int64_t chunk = ceil_div(taps, ceil_div(taps, most));
    p.planes = narrow(planes);
    p.chunk = narrow(chunk);
    p.stages = narrow(std::min<int64_t>(left / (chunk * tap), 8));
    return true;
  }
  return false;
}

/// The measured cycles of a wgmma with this many columns, for 64 rows and 32 bytes of k.
int64_t instruction_cycles(int64_t columns) { return std::max(columns / 2, 16 + columns / 4); }

/// The planes of the marches from number `step` to `end`.
int64_t planes_of(int64_t step, int64_t end, const flat::Product& p) {
  const int64_t cells = p.d.cells, tiles = end / cells - step / cells, in_last = end % cells;
  const int64_t first = march_at(step, end, p).planes();
  if (tiles == 0) return first;
  const int64_t last = in_last > 0 ? march_at(end - in_last, end, p).planes() : 0;
  return first + (tiles - 1) * march_at(0, cells, p).planes() + last;
}

/// Cuts pieces of at most plan.planes planes, each as long as possible. No other cut has fewer pieces,
/// because a piece that begins later ends no earlier. False if there are not enough blocks for all depths.
bool cut(Plan& plan, int most_blocks) {
  const flat::Product& p = plan.product;
  const int64_t all = steps_of(p), of_tile = std::max(march_at(0, p.d.cells, p).planes(), 1),
                reach = (plan.planes / of_tile + 2) * p.d.cells;
  int64_t step = 0;
  for (plan.blocks = 0; plan.blocks < most_blocks && step < all; plan.cuts[++plan.blocks] = step) {
    const auto ends = std::views::iota(step + 1, std::min(step + reach, all) + 1);
    const auto is_short = [&](int64_t end) { return planes_of(step, end, p) <= plan.planes; };
    step = *std::ranges::partition_point(ends, is_short) - 1;
  }
  return step == all;
}

}  // namespace

std::optional<flat::Product> cut_product(const Conv3dGeometry& g, bool transposed,
                                         const flat::TileShape& tile, int64_t shared) {
  if (std::max({g.stride.d, g.stride.h, g.stride.w}) > 1) return std::nullopt;
  const flat::Axes axes = flat::products_of(g, transposed)->front();
  if (axes.d.taps != tile.taps_d || axes.d.tap_step > 1) return std::nullopt;
  auto p = flat::cut_in_tiles(g, transposed, axes, tile);
  if (!p || !divide_for_march(*p, tile, shared)) return std::nullopt;
  return p;
}

Plan make_plan(const flat::Product& p, const Machine& machine) {
  Plan plan{p, 0, 0, {}};
  const int most = std::min(machine.multiprocessors, Plan::most_blocks);
  // Each cut costs up to taps - 1 planes, and a piece may leave as many unused.
  plan.planes = ceil_div(planes_of(0, steps_of(p), p), most);
  while (!cut(plan, most)) ++plan.planes;
  return plan;
}

int64_t cycles(const Plan& plan, const flat::TileShape& tile, int load_cycles) {
  const flat::Product& p = plan.product;
  const int64_t taps = int64_t{p.h.taps} * p.w.taps, loads = int64_t{p.row_groups} * p.window * load_cycles;
  // A short march takes as long as one of `taps` planes: its costs beside the products are not counted.
  return std::max<int64_t>(plan.planes, p.d.taps) * p.slabs *
         std::max(taps * tile.positions / 64 * instruction_cycles(tile.taps_d * tile.channels), loads);
}

int64_t flat_cycles(const flat::Product& p, const flat::TileShape& tile, const Machine& machine,
                    int load_cycles) {
  const int64_t depths = std::min(tile.depths, p.d.cells), taps = int64_t{p.h.taps} * p.w.taps;
  const int64_t products = depths * std::min(p.d.taps, p.d.in_cells) * taps * tile.positions / 64;
  const int64_t planes = p.depth_groups * std::min<int64_t>(depths + tile.taps_d - 1, p.d.in_cells),
                loads = planes * p.row_groups * p.window * load_cycles;
  return ceil_div(p.jobs(), machine.multiprocessors) * p.slabs *
         std::max(products * instruction_cycles(tile.channels), loads);
}

}  // namespace vox::cuda::conv::rolling

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/rolling/plan.h>

#include <algorithm>

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

/// The end of the longest piece of depths from number `step` on with at most this many planes, at least
/// `taps`.
int64_t piece_end(int64_t step, int64_t planes, const flat::Product& p) {
  const int64_t all = steps_of(p), of_tile = std::max(march_at(0, p.d.cells, p).planes(), 1);
  while (step < all) {
    if (step % p.d.cells == 0) {  // whole tiles
      const int64_t tiles = std::min(planes / of_tile, (all - step) / p.d.cells);
      step += tiles * p.d.cells;
      planes -= tiles * of_tile;
      if (step == all) break;
    }
    const March rest = march_at(step, all, p);
    if (rest.planes() > planes) {
      const int64_t end = rest.first_plane + planes - (p.d.taps - 1);
      return end > rest.first ? step + end - rest.first : step;
    }
    step += rest.end - rest.first;
    planes -= rest.planes();
  }
  return all;
}

/// Cuts pieces of at most this many planes. False if there are not enough blocks for all depths.
bool cut(Plan& plan, int64_t planes, int most_blocks) {
  const int64_t all = steps_of(plan.product);
  plan.cuts[0] = 0;
  for (plan.blocks = 0; plan.blocks < most_blocks && plan.cuts[plan.blocks] < all; ++plan.blocks)
    plan.cuts[plan.blocks + 1] = piece_end(plan.cuts[plan.blocks], planes, plan.product);
  return plan.cuts[plan.blocks] == all;
}

}  // namespace

std::optional<flat::Product> cut_product(const Conv3dGeometry& g, bool transposed,
                                         const flat::TileShape& tile, int64_t shared) {
  if (std::max({g.stride.d, g.stride.h, g.stride.w}) > 1) return std::nullopt;
  const flat::Axes axes = flat::axes_of(g, transposed, Triple(0));
  if (axes.dead() || axes.d.taps != tile.taps_d || axes.d.tap_step > 1) return std::nullopt;
  auto p = flat::cut_in_tiles(g, transposed, axes, tile);
  if (!p || !divide_for_march(*p, tile, shared)) return std::nullopt;
  return p;
}

Plan make_plan(const flat::Product& p, int multiprocessors) {
  Plan plan{p, 0, 0, {}};
  const int most = std::min(multiprocessors, Plan::most_blocks);
  // Each cut costs taps - 1 planes, and a piece may leave as many unused.
  const int64_t planes = ceil_div(steps_of(p) / p.d.cells * march_at(0, p.d.cells, p).planes(), most);
  int64_t least = std::max<int64_t>(planes, p.d.taps), enough = least + 2 * (p.d.taps - 1);
  while (least < enough) {
    const int64_t middle = (least + enough) / 2;
    if (cut(plan, middle, most))
      enough = middle;
    else
      least = middle + 1;
  }
  while (!cut(plan, enough, most)) ++enough;
  plan.planes = enough;
  return plan;
}

int64_t cycles(const Plan& plan, const flat::TileShape& tile, int load_cycles) {
  const flat::Product& p = plan.product;
  const int64_t taps = int64_t{p.h.taps} * p.w.taps, loads = int64_t{p.row_groups} * p.window * load_cycles;
  return plan.planes * p.slabs *
         std::max(taps * tile.positions / 64 * instruction_cycles(tile.taps_d * tile.channels), loads);
}

int64_t flat_cycles(const flat::Product& p, const flat::TileShape& tile, int multiprocessors,
                    int load_cycles) {
  const int64_t depths = std::min(tile.depths, p.d.cells), taps = int64_t{p.h.taps} * p.w.taps;
  const int64_t products = depths * std::min(p.d.taps, p.d.in_cells) * taps * tile.positions / 64;
  const int64_t planes = p.depth_groups * std::min<int64_t>(depths + tile.taps_d - 1, p.d.in_cells),
                loads = planes * p.row_groups * p.window * load_cycles;
  return ceil_div(p.jobs(), multiprocessors) * p.slabs *
         std::max(products * instruction_cycles(tile.channels), loads);
}

}  // namespace vox::cuda::conv::rolling

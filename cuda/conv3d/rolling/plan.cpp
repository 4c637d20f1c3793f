#include <voxgrad/cuda/conv3d/rolling/plan.h>

#include <algorithm>
#include <ranges>

namespace vox::cuda::conv::rolling {

namespace {

/// One plane more than there are loading warps, if four chunks of at least four taps fit beside them: a warp
/// takes long for a plane, so many planes must be in flight. Chunks of a window are of equal size.
bool divide_for_march(Product& p, const TileShape& tile, int64_t shared) {
  const int64_t taps = int64_t{p.rows} * p.w.taps, plane = plane_bytes(p), tap = tap_bytes(tile);
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

/// The planes of the marches from number `step` to `end`.
int64_t planes_of(int64_t step, int64_t end, const Product& p) {
  const int64_t cells = p.d.cells, tiles = end / cells - step / cells, in_last = end % cells;
  const int64_t first = march_at(step, end, p).planes();
  if (tiles == 0) return first;
  const int64_t last = in_last > 0 ? march_at(end - in_last, end, p).planes() : 0;
  return first + (tiles - 1) * march_at(0, cells, p).planes() + last;
}

/// Cuts pieces of at most plan.planes planes, each as long as possible. No other cut has fewer pieces,
/// because a piece that begins later ends no earlier. False if there are not enough blocks for all depths.
bool cut(Plan& plan, int most_blocks) {
  const Product& p = plan.product;
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

std::optional<Product> cut_product(const Conv3dGeometry& g, bool transposed, const TileShape& tile,
                                   int64_t shared) {
  auto p = cut_in_tiles(g, transposed, tile);
  if (!p || !divide_for_march(*p, tile, shared)) return std::nullopt;
  return p;
}

Plan cut_steps(const Product& p, const Machine& machine) {
  Plan plan{p, 0, 0, {}};
  const int most = std::min(machine.multiprocessors, Plan::most_blocks);
  // Each cut costs up to taps - 1 planes, and a piece may leave as many unused.
  plan.planes = ceil_div(planes_of(0, steps_of(p), p), most);
  while (!cut(plan, most)) ++plan.planes;
  return plan;
}

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int storage_bytes,
                                 int operand_bytes, const Machine& machine) {
  const int64_t channels = transposed ? g.big_per_group() : g.small_per_group();
  const bool in_32s =
      channels > 48 && ceil_div(channels, 32) * 2 < ceil_div(channels, 48) * 3;  // padded less
  const TileSize* size = nullptr;  // the smallest with room for the channels, or else the largest
  for (const TileSize& t : tile_sizes)
    if (t.taps_d == g.kernel.d && (!size || size->channels < channels) && !(in_32s && t.channels > 32))
      size = &t;
  if (g.batch == 0 || !size) return std::nullopt;
  const TileShape tile = shape_of(*size, storage_bytes, operand_bytes);
  const auto product =
      cut_product(g, transposed, tile, machine.block_shared_bytes - barrier_bytes - results_bytes(tile));
  if (!product) return std::nullopt;
  return Planned{tile, cut_steps(*product, machine)};
}

}  // namespace vox::cuda::conv::rolling

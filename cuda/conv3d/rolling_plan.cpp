#include <voxgrad/cuda/conv3d/integers.h>
#include <voxgrad/cuda/conv3d/rolling_plan.h>

#include <algorithm>

namespace vox::cuda {

namespace {

/// As many planes as loading warps, and one, where four chunks of at least four taps fit beside them: a warp
/// takes long for a plane, so that many have to be under way. Chunks of a window are of equal size.
bool divide_for_march(FlatProduct& p, const FlatTile& tile, int64_t shared) {
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

}  // namespace

std::optional<FlatProduct> rolling_product(const Conv3dGeometry& g, bool transposed, const FlatTile& tile,
                                           int64_t shared) {
  if (std::max({g.stride.d, g.stride.h, g.stride.w}) > 1) return std::nullopt;
  const FlatAxes axes = flat_axes(g, transposed, Triple(0));
  if (axes.dead() || axes.d.taps != tile.taps_d || axes.d.tap_step > 1) return std::nullopt;
  auto p = flat_cut(g, transposed, axes, tile);
  if (!p || !divide_for_march(*p, tile, shared)) return std::nullopt;
  return p;
}

}  // namespace vox::cuda

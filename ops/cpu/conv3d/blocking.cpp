#include <voxgrad/ops/cpu/conv3d/blocking.h>

#include <cmath>

namespace vox::cpu {
namespace {

constexpr double lanes = 16, threads = 16;
constexpr double copy_cost = 0.6, strided_copy_cost = 1.0;  // of copying one element into the tile

/// The lengths that cut n into 1, 2, 3, ... parts.
std::vector<int64_t> lengths(int64_t n, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t parts = (n + most - 1) / most; parts <= n; ++parts) {
    const int64_t length = (n + parts - 1) / parts;
    if (all.empty() || all.back() != length) all.push_back(length);
    parts = std::max(parts, (n - 1) / length);  // skips numbers of parts that give the same length
  }
  return all;
}

}  // namespace

TileChoice choose_tile(const std::array<TileAxis, 3>& axes, const TileCosts& costs) {
  TileChoice best;
  const double copy = axes[2].step == 1 ? copy_cost : strided_copy_cost;
  const std::vector<int64_t> depths = lengths(axes[0].outputs, 64), heights = lengths(axes[1].outputs, 256);
  const int64_t width = lengths(axes[2].outputs, 256).front();
  for (const int64_t w : {width, std::min<int64_t>(width, 64), std::min<int64_t>(width, 16)}) {
    for (const int64_t h : heights) {
      for (const int64_t d : depths) {
        const TileLayout layout{axes, {d, h, w}};
        const double size = costs.channels * static_cast<double>(layout.classes()) *
                            static_cast<double>(layout.extent(0)) * static_cast<double>(layout.plane());
        const double bytes = size * static_cast<double>(costs.element);
        const double positions = static_cast<double>(d) * static_cast<double>((h - 1) * layout.pitch() + w);
        const bool one = d == 1 && h == 1;  // the smallest may be a little too large
        if (bytes > static_cast<double>(costs.bytes) * (one ? 8 : 1)) continue;
        if (positions > static_cast<double>(costs.positions) && !one) continue;
        const double vectors = static_cast<double>(d) * std::ceil(positions / static_cast<double>(d) / lanes);
        const double tiles = static_cast<double>(layout.tiles()) * costs.copies;
        const double cost = (size * copy + vectors * costs.products + positions * costs.per_position +
                             static_cast<double>(d) * costs.per_plane + costs.per_tile) *
                            std::ceil(tiles / threads) * threads;
        if (!best || cost < best.cost) best = {{d, h, w}, cost};
      }
    }
    if (best) break;
  }
  return best;
}

}  // namespace vox::cpu

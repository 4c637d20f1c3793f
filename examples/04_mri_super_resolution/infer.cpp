#include "infer.h"

#include <algorithm>

namespace mri {

Volume super_resolve(SuperResolution& network, const Volume& low, Range range, vox::Device device) {
  constexpr int64_t kTile = 16;
  const auto guard = vox::no_grad();
  Volume high({2 * range.length(), 2 * low.size[1], 2 * low.size[2]});
  for (int axis = 0; axis < 3; ++axis) high.spacing[axis] = low.spacing[axis] / 2;
  auto out = high.voxels.begin();
  for (int64_t begin = range.begin; begin < range.end; begin += kTile) {
    const int64_t end = std::min(begin + kTile, range.end);
    const int64_t first = std::max<int64_t>(begin - SuperResolution::kReach, 0);
    const int64_t last = std::min(end + SuperResolution::kReach, low.size[0]);
    const Volume tile = crop(low, {first, 0, 0}, {last - first, low.size[1], low.size[2]});
    const vox::Tensor input =
        vox::from_vector<float>(tile.voxels, {1, 1, tile.size[0], tile.size[1], tile.size[2]}, device);
    const vox::Tensor output = network(input).slice(2, 2 * (begin - first), 2 * (end - first));
    const std::vector<float> values = output.to_vector<float>();
    out = std::copy(values.begin(), values.end(), out);
  }
  return high;
}

Volume super_resolve(SuperResolution& network, const Volume& low, vox::Device device) {
  return super_resolve(network, low, {0, low.size[0]}, device);
}

}  // namespace mri

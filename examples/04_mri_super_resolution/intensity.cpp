#include "intensity.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace mri {

float percentile(const Volume& volume, double percent) {
  if (volume.voxels.empty() || !(percent >= 0 && percent <= 100)) {
    throw std::invalid_argument("percentile: needs voxels and a percentage in 0..100, got " +
                                std::to_string(volume.voxels.size()) + " voxels and " +
                                std::to_string(percent));
  }
  std::vector<float> values = volume.voxels;
  const double rank = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = values.begin() + static_cast<int64_t>(rank);
  std::nth_element(values.begin(), below, values.end());
  if (below + 1 == values.end()) return *below;
  const float above = *std::min_element(below + 1, values.end());
  const double fraction = rank - static_cast<double>(static_cast<int64_t>(rank));
  return static_cast<float>(*below + fraction * (above - *below));
}

Volume normalise(const Scan& scan) {
  Volume normalised = scan.volume;
  if (scan.is_uint8) {
    for (float& voxel : normalised.voxels) voxel /= 255.0f;
    return normalised;
  }
  const float black = percentile(scan.volume, 0.5);
  const float white = percentile(scan.volume, 99.5);
  if (!(black < white)) {
    throw std::invalid_argument("normalise: the 0.5 and 99.5 percentiles are both " + std::to_string(black) +
                                ", the image has no contrast");
  }
  for (float& voxel : normalised.voxels) voxel = std::clamp((voxel - black) / (white - black), 0.0f, 1.0f);
  return normalised;
}

}  // namespace mri

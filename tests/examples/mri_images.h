// Small images for the tests of the MRI example.
#pragma once

#include <random>

#include "volume.h"

namespace mri {

/// Uniform noise in 0..1, the same for the same seed.
inline Volume noise(Size size, unsigned seed) {
  Volume volume(size);
  std::mt19937 generator(seed);
  for (float& voxel : volume.voxels) voxel = static_cast<float>(generator() % 100001) / 100000.0f;
  return volume;
}

}  // namespace mri

#include "resample.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace mri {
namespace {

// Doubles one axis. Rows along it are `inner` voxels apart, so the loop over `inner` is contiguous for every
// axis.
Volume upsample_axis(const Volume& volume, int axis) {
  const int64_t length = volume.size[axis];
  int64_t inner = 1;
  for (int later = axis + 1; later < 3; ++later) inner *= volume.size[later];
  const int64_t outer = volume.numel() / (length * inner);

  Size size = volume.size;
  size[axis] *= 2;
  Volume doubled(size);
  doubled.spacing = volume.spacing;
  doubled.spacing[axis] /= 2;
  for (int64_t o = 0; o < outer; ++o) {
    const float* block = volume.voxels.data() + o * length * inner;
    float* out = doubled.voxels.data() + o * length * inner * 2;
    for (int64_t i = 0; i < length; ++i) {
      const float* here = block + i * inner;
      const float* before = block + std::max<int64_t>(i - 1, 0) * inner;
      const float* after = block + std::min(i + 1, length - 1) * inner;
      for (int64_t j = 0; j < inner; ++j) {
        out[2 * i * inner + j] = 0.25f * before[j] + 0.75f * here[j];
        out[(2 * i + 1) * inner + j] = 0.75f * here[j] + 0.25f * after[j];
      }
    }
  }
  return doubled;
}

}  // namespace

Volume downsample(const Volume& high) {
  Size half{};
  for (int axis = 0; axis < 3; ++axis) {
    if (high.size[axis] % 2 != 0) {
      throw std::invalid_argument("downsample: axis " + std::to_string(axis) + " has odd size " +
                                  std::to_string(high.size[axis]) + "; crop_to_even makes it even");
    }
    half[axis] = high.size[axis] / 2;
  }
  Volume low(half);
  for (int axis = 0; axis < 3; ++axis) low.spacing[axis] = 2 * high.spacing[axis];
  for (int64_t d = 0; d < half[0]; ++d) {
    for (int64_t h = 0; h < half[1]; ++h) {
      for (int64_t w = 0; w < half[2]; ++w) {
        float sum = 0;
        for (int64_t corner = 0; corner < 8; ++corner) {
          sum += high.at(2 * d + (corner >> 2), 2 * h + (corner >> 1 & 1), 2 * w + (corner & 1));
        }
        low.at(d, h, w) = sum / 8;
      }
    }
  }
  return low;
}

Volume upsample_trilinear(const Volume& low) {
  return upsample_axis(upsample_axis(upsample_axis(low, 2), 1), 0);
}

}  // namespace mri

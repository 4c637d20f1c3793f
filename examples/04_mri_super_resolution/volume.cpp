#include "volume.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace mri {

Volume crop(const Volume& volume, Size begin, Size size) {
  for (int axis = 0; axis < 3; ++axis) {
    if (begin[axis] < 0 || size[axis] < 0 || begin[axis] > volume.size[axis] - size[axis]) {
      throw std::out_of_range("crop: [" + std::to_string(begin[axis]) + ", " +
                              std::to_string(begin[axis] + size[axis]) + ") leaves axis " +
                              std::to_string(axis) + " of size " + std::to_string(volume.size[axis]));
    }
  }
  Volume box(size);
  box.spacing = volume.spacing;
  for (int64_t d = 0; d < size[0]; ++d) {
    for (int64_t h = 0; h < size[1]; ++h) {
      const auto row = volume.voxels.begin() + volume.index(begin[0] + d, begin[1] + h, begin[2]);
      std::copy(row, row + size[2], box.voxels.begin() + box.index(d, h, 0));
    }
  }
  return box;
}

Volume crop_to_even(const Volume& volume) {
  Size even{};
  for (int axis = 0; axis < 3; ++axis) {
    even[axis] = volume.size[axis] / 2 * 2;
    if (even[axis] == 0) {
      throw std::invalid_argument("crop_to_even: axis " + std::to_string(axis) + " has size " +
                                  std::to_string(volume.size[axis]) + ", it needs at least 2");
    }
  }
  return crop(volume, {0, 0, 0}, even);
}

}  // namespace mri

// Regions of a mask, voxel by voxel.
#pragma once

#include <limits>
#include <vector>

#include "volume.h"

namespace mri {

/// Calls f with the index of each of the up to 6 neighbours.
template <class F>
void for_each_neighbour(const Size& size, size_t index, F f) {
  auto rest = static_cast<int64_t>(index), stride = int64_t{1};
  for (size_t axis = 3; axis-- > 0;) {
    const int64_t place = rest % size[axis];
    if (place > 0) f(index - static_cast<size_t>(stride));
    if (place + 1 < size[axis]) f(index + static_cast<size_t>(stride));
    rest /= size[axis];
    stride *= size[axis];
  }
}

/// `mask` and all voxels of `allowed` that are connected to it inside `allowed` by at most `steps` moves
/// along an axis.
inline Mask grow(Mask mask, const Mask& allowed, const Size& size,
                 int64_t steps = std::numeric_limits<int64_t>::max()) {
  std::vector<size_t> front, next;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) front.push_back(i);
  }
  for (; steps > 0 && !front.empty(); --steps) {
    next.clear();
    for (const size_t i : front) {
      for_each_neighbour(size, i, [&](size_t j) {
        if (mask[j] || !allowed[j]) return;
        mask[j] = 1;
        next.push_back(j);
      });
    }
    front.swap(next);
  }
  return mask;
}

}  // namespace mri

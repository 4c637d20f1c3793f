#include "split.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace mri {

Split split_planes(int64_t depth, int64_t reach) {
  Split split;
  split.slab = {depth * 45 / 100, depth * 65 / 100};
  for (const Range range : {Range{0, split.slab.begin - reach}, Range{split.slab.end + reach, depth}}) {
    if (range.length() > 0) split.training.push_back(range);
  }
  // SSIM's window of 7 needs 4 planes of the low resolution.
  if (split.slab.length() < 4 || split.training.empty()) {
    throw std::invalid_argument(
        "split_planes: " + std::to_string(2 * depth) +
        " planes from foot to head are too few to train on some and evaluate on others");
  }
  return split;
}

}  // namespace mri

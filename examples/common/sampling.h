// Which planes are for training and which for evaluation, and random patches.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "volume.h"

namespace mri {

/// A division of the planes along an axis:
///
///     training | gap | evaluation slab | gap | training
struct Split {
  Range slab;
  std::vector<Range> training;
};

/// Takes as the slab the planes from `first` % to `last` % of `count`. Throws std::invalid_argument if
/// nothing is left to train or evaluate on.
inline Split split_planes(int64_t count, int64_t gap, int64_t first = 45, int64_t last = 65) {
  Split split;
  split.slab = {count * first / 100, count * last / 100};
  for (const Range range : {Range{0, split.slab.begin - gap}, Range{split.slab.end + gap, count}}) {
    if (range.length() > 0) split.training.push_back(range);
  }
  // SSIM's window of 7 needs 4 planes of half the resolution.
  if (split.slab.length() < 4 || split.training.empty()) {
    throw std::invalid_argument("split_planes: " + std::to_string(count) +
                                " planes are too few to train on some and evaluate on others");
  }
  return split;
}

/// An integer in [0, count) from 32 random bits; the bias is below count / 2^32.
inline int64_t pick(uint32_t word, int64_t count) {
  return static_cast<int64_t>(static_cast<uint64_t>(word) * static_cast<uint64_t>(count) >> 32);
}

/// Appends the cube of `edge` voxels at `origin` of a volume or mask, mirrored along the axes where `mirror`
/// is true.
template <class From, class To>
void append_box(const std::vector<From>& from, const Size& size, const Size& origin, int64_t edge,
                const bool* mirror, std::vector<To>& to) {
  const auto place = [&](int axis, int64_t i) { return origin[axis] + (mirror[axis] ? edge - 1 - i : i); };
  for_each_voxel(whole({edge, edge, edge}), [&](int64_t d, int64_t h, int64_t w) {
    const int64_t index = (place(0, d) * size[1] + place(1, h)) * size[2] + place(2, w);
    to.push_back(static_cast<To>(from[static_cast<std::size_t>(index)]));
  });
}

}  // namespace mri

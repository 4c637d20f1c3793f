// Which planes teach and which examine.
#pragma once

#include <cstdint>
#include <vector>

namespace mri {

/// Planes [begin, end) along D.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
};

/// A division of the planes of the low resolution:
///
///     training | gap | evaluation slab | gap | training
///
/// The gaps are as wide as the network sees. So the slab is computed from low-resolution planes, and those
/// from high-resolution planes, that no training patch contains.
struct Split {
  Range slab;
  std::vector<Range> training;
};

/// The slab is the planes from 45 % to 65 % of `depth`: in a head, the region of the ventricles.
/// Throws std::invalid_argument if nothing is left to train or evaluate on.
Split split_planes(int64_t depth, int64_t reach);

}  // namespace mri

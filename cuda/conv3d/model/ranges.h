#pragma once

#include <cstdint>
#include <initializer_list>

#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cuda::conv {

/// Whether the product of these numbers, none of which is negative, is at most `limit`. It cannot overflow.
constexpr bool product_fits(std::initializer_list<int64_t> factors, int64_t limit = most_int) {
  for (const int64_t factor : factors) {
    if (factor == 0) return true;
    limit /= factor;
  }
  return limit > 0;
}

/// Whether each of these numbers is at most `limit`.
constexpr bool all_fit(std::initializer_list<int64_t> numbers, int64_t limit = most_int) {
  for (const int64_t number : numbers)
    if (number > limit) return false;
  return true;
}

/// Whether every index of the rule along an axis, the number of a tap, and what a thread adds to it on the
/// way, fits 32 bits.
inline bool axes_fit_32_bits(const Conv3dGeometry& g) {
  constexpr int64_t limit = int64_t{1} << 29;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const auto numbers = {g.big[axis],    g.small[axis],   g.kernel[axis],
                          g.stride[axis], g.padding[axis], g.dilation[axis]};
    if (!all_fit(numbers, limit) ||
        !all_fit({g.small[axis] * g.stride[axis], g.kernel[axis] * g.dilation[axis]}, limit))
      return false;
  }
  return g.taps() <= limit;
}

}  // namespace vox::cuda::conv

#pragma once

#include <cstdint>
#include <initializer_list>

#include <voxgrad/cuda/conv3d/model/machine.h>

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

}  // namespace vox::cuda::conv

#pragma once

#include <cstdint>

namespace vox::cuda {

/// a / b and a % b, with 32-bit arithmetic where it does.
struct Division {
  int64_t quotient, remainder;
};
__device__ __forceinline__ Division divide(int64_t a, int64_t b) {
  if ((a | b) >> 32) return {a / b, a % b};
  const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  return {x / y, x % y};
}

}  // namespace vox::cuda

#pragma once

#include <array>
#include <cstddef>

namespace vox::cuda::conv {

/// The digits of a number in a mixed radix, the last one fastest. Kernels number their jobs in this way, and
/// so do the tests that walk through a plan:
///
///   const auto [group, channels, image, tile] = digits(job, {p.channel_blocks, p.batch, p.tiles});
///
/// The radices are those of all digits except the first, which has no limit.
template <class Number, size_t n>
constexpr std::array<int, n + 1> digits(Number number, const int (&radix)[n]) {
  std::array<int, n + 1> digit{};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (size_t i = n; i > 0; --i) {
    digit[i] = static_cast<int>(number % radix[i - 1]);
    number /= radix[i - 1];
  }
  digit[0] = static_cast<int>(number);
  return digit;
}

}  // namespace vox::cuda::conv

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// Integer arithmetic for plans and kernels.

namespace vox::cuda::conv {

/// a / b, rounded up, for a >= 0 and b >= 1.
template <class A, class B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  return static_cast<std::common_type_t<A, B>>((int64_t{a} + b - 1) / b);
}

/// Whether 0 <= i < size.
constexpr bool within(int i, int size) { return static_cast<unsigned>(i) < static_cast<unsigned>(size); }

/// i as an int; the caller knows that it fits.
constexpr int narrow(int64_t i) { return static_cast<int>(i); }

/// a / b and a % b, by 32-bit arithmetic if both numbers fit.
struct Division {
  int64_t quotient, remainder;
};
constexpr Division divide(int64_t a, int64_t b) {
  if ((a | b) >> 32) return {a / b, a % b};
  const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  return {x / y, x % y};
}

/// Division of n < 2^31 by multiplication: n / divisor == (n * multiplier) >> shift.
struct Divisor {
  int divisor = 1;
  uint32_t multiplier = uint32_t{1} << 31;
  int shift = 31;

  constexpr int quotient(int n) const {
    return static_cast<int>((uint64_t{static_cast<uint32_t>(n)} * multiplier) >> shift);
  }
};
/// With shift 31 + log2(d), rounded up, the multiplier has 32 bits and its error is below 1 / n.
constexpr Divisor divisor_of(int64_t d) {
  int bits = 0;
  while (int64_t{1} << bits < d) ++bits;
  const uint64_t scale = uint64_t{1} << (31 + bits), divisor = static_cast<uint64_t>(d);
  return {narrow(d), static_cast<uint32_t>((scale + divisor - 1) / divisor), 31 + bits};
}

/// The digits of a number (model/jobs.h) by multiplications.
template <size_t n>
constexpr std::array<int, n + 1> digits(int number, const Divisor (&radix)[n]) {
  std::array<int, n + 1> digit{};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (size_t i = n; i > 0; --i) {
    const int rest = radix[i - 1].quotient(number);
    digit[i] = number - rest * radix[i - 1].divisor;
    number = rest;
  }
  digit[0] = number;
  return digit;
}

}  // namespace vox::cuda::conv

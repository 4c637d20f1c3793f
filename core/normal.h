#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <voxgrad/core/host_device.h>

// Note [Normals with the same bits everywhere]
//
// The log, sine and cosine of the C library and of CUDA differ in their last bits. So these are our own, made
// only of operations that IEEE 754 rounds in one way: +, -, *, /, sqrt, and exact ones. One danger is left: a
// compiler may fuse a * b + c into one rounding. nvcc does so unless the intrinsics below prevent it; host
// files that include this header must be compiled with -ffp-contract=off, as the whole project is.

namespace vox::detail {

#ifdef __CUDA_ARCH__
__device__ inline double add_rounded(double a, double b) { return __dadd_rn(a, b); }
__device__ inline double mul_rounded(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double div_rounded(double a, double b) { return __ddiv_rn(a, b); }
__device__ inline double sqrt_rounded(double a) { return __dsqrt_rn(a); }
#else
inline double add_rounded(double a, double b) { return a + b; }
inline double mul_rounded(double a, double b) { return a * b; }
inline double div_rounded(double a, double b) { return a / b; }
inline double sqrt_rounded(double a) { return std::sqrt(a); }
#endif

/// c[0] + x (c[1] + x (c[2] + ...)), by Horner's rule.
template <int n>
VOX_HOST_DEVICE inline double polynomial(double x, const double (&c)[n]) {
  double sum = c[n - 1];
  for (int i = n - 2; i >= 0; --i) sum = add_rounded(c[i], mul_rounded(x, sum));
  return sum;
}

/// Natural logarithm of a normal, positive x; error below 2 ulp (measured by the test).
/// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172; the
/// series of atanh stops where the next term, s^24 / 25 relative, is below 2^-65.
VOX_HOST_DEVICE inline double log_rounded(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m > 0x1.6a09e667f3bcdp+0) {  // sqrt(2)
    m *= 0.5;
    ++exponent;
  }
  const double s = div_rounded(m - 1, m + 1);
  const double s2 = mul_rounded(s, s);
  constexpr double series[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                               1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
  const double twice = 2 * s;
  const double tail = mul_rounded(mul_rounded(twice, s2), polynomial(s2, series));
  // ln 2 in two parts: the first has 21 trailing zero bits, so that exponent * high is exact.
  constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
  const double low = add_rounded(tail, mul_rounded(exponent, ln2_low));
  return add_rounded(mul_rounded(exponent, ln2_high), add_rounded(twice, low));
}

struct SinCos {
  double sin, cos;
};

/// sin and cos of 2 pi t for t in [0, 1); error below 2^-52 (measured by the test). The nearest quarter turn
/// is subtracted exactly. The Taylor series of the rest, |angle| <= pi/4, stop below 2^-60.
VOX_HOST_DEVICE inline SinCos sincos_turns(double t) {
  const int quarters = static_cast<int>(4 * t + 0.5);
  const double angle = mul_rounded(4 * t - quarters, 0x1.921fb54442d18p+0);  // pi / 2
  const double a2 = mul_rounded(angle, angle);
  constexpr double sin_series[] = {-1.0 / 6,
                                   1.0 / 120,
                                   -1.0 / 5040,
                                   1.0 / 362880,
                                   -1.0 / 39916800.0,
                                   1.0 / 6227020800.0,
                                   -1.0 / 1307674368000.0,
                                   1.0 / 355687428096000.0};
  constexpr double cos_series[] = {
      -1.0 / 2,         1.0 / 24,          -1.0 / 720,           1.0 / 40320,
      -1.0 / 3628800.0, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
  const double sin = add_rounded(angle, mul_rounded(mul_rounded(angle, a2), polynomial(a2, sin_series)));
  const double cos = add_rounded(1, mul_rounded(a2, polynomial(a2, cos_series)));
  switch (quarters & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

struct NormalPair {
  double first, second;
};

/// Two independent normals from two independent uniforms, u in (0, 1] and t in [0, 1).
/// G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
VOX_HOST_DEVICE inline NormalPair box_muller(double u, double t) {
  const double radius = sqrt_rounded(-2 * log_rounded(u));
  const SinCos at = sincos_turns(t);
  return {mul_rounded(radius, at.cos), mul_rounded(radius, at.sin)};
}

}  // namespace vox::detail

#pragma once

#include <cstdint>

// exp, log and their relatives as straight-line code, so that a loop over them becomes vector code. A library
// function instead is one call per element. float and double share one template; constants and lengths of the
// series differ. tests/ops/cpu/math_test.cpp measures the errors against long double:
//
//   exp, log         1.02 and 1 ulp, denormal arguments and results included
//   tanh             2.5 ulp
//   sigmoid, silu    3 ulp; below -87 (f64: -708) they are 0
//   expm1, mish      4 ulp; softplus 3 ulp
//
// Series are those of the textbook, cut where the next term is below a quarter of a unit in the last place.

namespace vox::cpu::simd::VOXGRAD_ISA {

template <class T>
struct Real;

template <>
struct Real<float> {
  using Bits = uint32_t;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float round_shift = 0x1.8p23f;  // adding it rounds to a whole number, in the low bits
  static constexpr float power_shift = 0x1p23f;
  static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cf79abcap-20f;  // high: 15 bits
  static constexpr float lowest_exp = -104, lowest_normal_exp = -87, highest_exp = 89, tanh_is_1 = 10;
  static constexpr float smallest_normal = 0x1p-126f, infinity = __builtin_inff(), nan = __builtin_nanf("");
  static constexpr Bits root_half = 0x3f3504f3;
  static constexpr int exp_terms = 7, log_terms = 5;
};

template <>
struct Real<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double round_shift = 0x1.8p52;
  static constexpr double power_shift = 0x1p52;
  static constexpr double ln2_high = 0x1.62e42fefa2p-1, ln2_low = 0x1.9ef35793c7673p-41;  // high: 40 bits
  static constexpr double lowest_exp = -746, lowest_normal_exp = -708, highest_exp = 710, tanh_is_1 = 20;
  static constexpr double smallest_normal = 0x1p-1022, infinity = __builtin_inf(), nan = __builtin_nan("");
  static constexpr Bits root_half = 0x3fe6a09e667f3bcd;
  static constexpr int exp_terms = 13, log_terms = 10;
};

template <class T>
using BitsOf = typename Real<T>::Bits;

template <class T>
[[gnu::always_inline]] inline BitsOf<T> bits_of(T x) {
  return __builtin_bit_cast(BitsOf<T>, x);
}
template <class T>
[[gnu::always_inline]] inline T real_of(BitsOf<T> bits) {
  return __builtin_bit_cast(T, bits);
}

/// a * b + c, in one rounding where the instruction set has it.
[[gnu::always_inline]] inline float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
[[gnu::always_inline]] inline double fma(double a, double b, double c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <class T>
[[gnu::always_inline]] inline T absolute(T x) {
  return real_of<T>(bits_of(x) & (~BitsOf<T>(0) >> 1));
}
/// `magnitude`, which is not negative, with the sign of `sign`.
template <class T>
[[gnu::always_inline]] inline T with_sign(T magnitude, T sign) {
  return real_of<T>(bits_of(magnitude) | (bits_of(sign) & ~(~BitsOf<T>(0) >> 1)));
}

/// 2^n for a whole n of the normal range, given as n + round_shift.
template <class T>
[[gnu::always_inline]] inline T power_of_2(T shifted) {
  using R = Real<T>;
  return real_of<T>((bits_of(shifted) - bits_of(R::round_shift) + R::bias) << R::mantissa);
}

/// sum of r^(k-2) / k! for k = 2 to exp_terms: e^r = 1 + r + r^2 * series. |r| <= ln(2) / 2.
template <class T>
[[gnu::always_inline]] inline T exp_series(T r) {
  constexpr double inverse_factorial[] = {
      1,         1,          1. / 2,      1. / 6,       1. / 24,       1. / 120,       1. / 720,
      1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800};
  T sum = static_cast<T>(inverse_factorial[Real<T>::exp_terms]);
#pragma GCC unroll 16
  for (int k = Real<T>::exp_terms - 1; k >= 2; --k) sum = fma(sum, r, static_cast<T>(inverse_factorial[k]));
  return sum;
}

/// x = n ln 2 + r; n comes as n + round_shift. ln 2 in two parts, the first of so few bits that n times it is
/// exact.
template <class T>
struct Reduced {
  T shifted, n, r;
};
template <class T>
[[gnu::always_inline]] inline Reduced<T> reduce_by_ln2(T x) {
  using R = Real<T>;
  const T shifted = fma(x, T(1.44269504088896340736), R::round_shift);
  const T n = shifted - R::round_shift;
  return {shifted, n, fma(n, -R::ln2_low, fma(n, -R::ln2_high, x))};
}

/// e^x if the result is a normal number; unspecified otherwise.
template <class T>
[[gnu::always_inline]] inline T exp_of_normal(T x) {
  const Reduced<T> a = reduce_by_ln2(x);
  return (fma(exp_series(a.r), a.r * a.r, a.r) + T(1)) * power_of_2(a.shifted);
}

template <class T>
[[gnu::always_inline]] inline T exp(T x) {
  using R = Real<T>;
  const Reduced<T> a = reduce_by_ln2(x);
  const T y = fma(exp_series(a.r), a.r * a.r, a.r) + T(1);
  // 2^n in two factors: 2^n itself may be infinite or denormal although the result is not.
  const T half = fma(a.n, T(0.5), R::round_shift);
  const T rest = real_of<T>((bits_of(a.shifted) - bits_of(half) + R::bias) << R::mantissa);
  const T scaled = y * power_of_2(half) * rest;
  // Selected afterwards, because the compiler turns two limits on x into one long chain of choices.
  const T finite = x > R::highest_exp ? R::infinity : scaled;
  return x < R::lowest_exp ? T(0) : finite;
}

/// e^x for x <= 0; results below the normal numbers are 0.
template <class T>
[[gnu::always_inline]] inline T exp_of_negative(T x) {
  return x < Real<T>::lowest_normal_exp ? T(0) : exp_of_normal(x);
}

/// log(2^e m) = e ln 2 + log(1 + f), m between the roots of 1/2 and 2; with s = f / (2 + f),
/// log(1 + f) = 2 artanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...), arranged so that f itself is added last.
template <class T>
[[gnu::always_inline]] inline T log(T x) {
  using R = Real<T>;
  using Bits = BitsOf<T>;
  constexpr T lift = Bits(1) << (R::mantissa + 2);
  const bool is_denormal = x < R::smallest_normal;
  const T normal = is_denormal ? x * lift : x;
  const Bits from_root = bits_of(normal) + ((Bits(R::bias) << R::mantissa) - R::root_half);
  const T f = real_of<T>((from_root & ((Bits(1) << R::mantissa) - 1)) + R::root_half) - T(1);
  const T biased = real_of<T>((from_root >> R::mantissa) | bits_of(R::power_shift)) - R::power_shift;
  const T e = biased - (is_denormal ? T(R::bias + R::mantissa + 2) : T(R::bias));

  const T s = f / (T(2) + f), z = s * s;
  T series = T(2. / (2 * R::log_terms + 1));
#pragma GCC unroll 16
  for (int k = R::log_terms - 1; k >= 1; --k) series = fma(series, z, T(2. / (2 * k + 1)));
  const T half_square = T(0.5) * f * f;
  const T y = fma(e, R::ln2_high, f - (half_square - fma(s, fma(series, z, half_square), e * R::ln2_low)));

  const T of_positive = x < R::infinity ? y : x;
  const T of_others = x == T(0) ? -R::infinity : R::nan;
  return x > T(0) ? of_positive : of_others;
}

/// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), which does not cancel, if 2^n is a normal number.
template <class T>
[[gnu::always_inline]] inline T expm1_of_normal(T x) {
  const Reduced<T> a = reduce_by_ln2(x);
  const T scale = power_of_2(a.shifted);
  return fma(scale, fma(exp_series(a.r), a.r * a.r, a.r), scale - T(1));
}

/// e^x - 1 for x <= 0.
template <class T>
[[gnu::always_inline]] inline T expm1_of_negative(T x) {
  constexpr T is_minus_1 = -2 * Real<T>::tanh_is_1;
  return expm1_of_normal(x < is_minus_1 ? is_minus_1 : x);
}

/// (e^t - 1) / (e^t + 1) with t = 2 |x|
template <class T>
[[gnu::always_inline]] inline T tanh(T x) {
  using R = Real<T>;
  T a = absolute(x);
  a = a > R::tanh_is_1 ? R::tanh_is_1 : a;
  const T e = expm1_of_normal(a + a);
  return with_sign(e / (e + T(2)), x);
}

/// 1 / (1 + e^-x) as e^x / (1 + e^x) for negative x: nothing overflows.
template <class T>
[[gnu::always_inline]] inline T sigmoid(T x) {
  const T e = exp_of_negative(-absolute(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

template <class T>
[[gnu::always_inline]] inline T silu(T x) {
  const T e = exp_of_negative(-absolute(x));
  return (x < T(0) ? x * e : x) / (T(1) + e);
}

/// log(1 + e^x) = max(x, 0) + log(1 + e) with e = e^-|x|. The logarithm of the rounded 1 + e misses what was
/// rounded off, which the last term adds.
template <class T>
[[gnu::always_inline]] inline T log_of_1_plus_exp(T x) {
  const T e = exp(-absolute(x)), sum = T(1) + e;
  const T logarithm = log(sum) + (e - (sum - T(1))) / sum;
  return (x > T(0) ? x : T(0)) + logarithm;
}

/// tanh(log(1 + e^x)) = n / d, and d - n, which does not cancel. With t = e^-|x|, n = t^2 + 2t for negative
/// x, and 1 + 2t (the same times t^2) for others.
template <class T>
struct TanhOfSoftplus {
  T n, rest;  // d = n + rest
};
template <class T>
[[gnu::always_inline]] inline TanhOfSoftplus<T> tanh_of_softplus(T x) {
  const T t = exp(-absolute(x));
  return {x < T(0) ? t * (t + T(2)) : T(1) + (t + t), x < T(0) ? T(2) : T(2) * t * t};
}
template <class T>
[[gnu::always_inline]] inline T mish(T x) {
  const TanhOfSoftplus<T> w = tanh_of_softplus(x);
  return x * (w.n / (w.n + w.rest));
}
/// w + x sigmoid(x) (1 - w^2) with w = n / d; 1 - w^2 = (d - n) (d + n) / d^2.
template <class T>
[[gnu::always_inline]] inline T mish_slope(T x) {
  const TanhOfSoftplus<T> w = tanh_of_softplus(x);
  const T d = w.n + w.rest;
  return w.n / d + x * sigmoid(x) * (w.rest / d * ((d + w.n) / d));
}

// ---- Functions of float, computed in double: rounded once, so within 0.51 ulp -----------------------------

/// erfc(a) for a >= 0 is e^(-a^2) times a polynomial in t = 1 / (1 + a/2), fitted to a relative error of
/// 5e-10 (Chebyshev interpolation of erfcx for a <= 11, beyond which float has no such numbers).
struct ErfcFactors {
  double exponential, polynomial;
};
[[gnu::always_inline]] inline ErfcFactors erfc_of_positive(double a) {
  constexpr double c[] = {0.009773130365225422, -0.10645766974932307, 0.4940446555238189, -1.2823772384318628,
                          2.0220083623931693,   -1.9504877509356167,  1.14822079856173,   -0.5462544788648557,
                          0.25869799005707467,  0.13598430654364502,  0.2533011493504546, 0.2814103079294593,
                          0.2821376352010908,   -1.19795185748118e-06};
  const double t = 1 / fma(a, 0.5, 1.);
  double sum = c[0];
#pragma GCC unroll 16
  for (int k = 1; k < 14; ++k) sum = fma(sum, t, c[k]);
  return {a > 11 ? 0 : exp_of_normal(-(a * a)), sum};
}

/// Up to 1 the power series 2/sqrt(pi) (x - x^3/3 + x^5/10 - ...), beyond it 1 - erfc.
[[gnu::always_inline]] inline float erf(float value) {
  constexpr double c[] = {9.422759064650411e-11,   -1.2290555301717928e-09, 1.4807192815879218e-08,
                          -1.6365844691234924e-07, 1.6462114365889248e-06,  -1.492565035840625e-05,
                          0.00012055332981789664,  -0.0008548327023450853,  0.005223977625442188,
                          -0.026866170645131252,   0.11283791670955126,     -0.37612638903183754,
                          1.1283791670955126};
  const double x = value, a = absolute(x), z = x * x;
  double sum = c[0];
#pragma GCC unroll 16
  for (int k = 1; k < 13; ++k) sum = fma(sum, z, c[k]);
  const ErfcFactors e = erfc_of_positive(a);
  return static_cast<float>(a < 1 ? x * sum : with_sign(1 - e.exponential * e.polynomial, x));
}

/// x/2 erfc(-x / sqrt 2).
[[gnu::always_inline]] inline float gelu(float value) {
  const double x = value;
  const ErfcFactors e = erfc_of_positive(absolute(x) * 0.70710678118654752440);
  const double c = e.exponential * e.polynomial;
  return static_cast<float>(0.5 * x * (x > 0 ? 2 - c : c));
}

/// Phi(x) + x phi(x); phi(x) = e^(-x^2 / 2) / sqrt(2 pi).
[[gnu::always_inline]] inline float gelu_slope(float value) {
  const double x = value;
  const ErfcFactors e = erfc_of_positive(absolute(x) * 0.70710678118654752440);
  const double c = e.exponential * e.polynomial;
  return static_cast<float>(0.5 * (x > 0 ? 2 - c : c) + x * e.exponential * 0.39894228040143267794);
}

/// For a positive and finite a and a finite b: e^(b log a).
[[gnu::always_inline]] inline float pow_of_positive(float a, float b) {
  return static_cast<float>(exp(static_cast<double>(b) * log(static_cast<double>(a))));
}

// ---- In double there is no wider type to compute in: libm, one element at a time --------------------------

inline double erf(double x) { return __builtin_erf(x); }
/// Error up to x^2 ulp, because erfc's steep tail magnifies the rounding of its argument.
inline double gelu(double x) { return 0.5 * x * __builtin_erfc(x * -0.70710678118654752440); }
inline double gelu_slope(double x) {
  return 0.5 * __builtin_erfc(x * -0.70710678118654752440) + x * exp(x * x * -0.5) * 0.39894228040143267794;
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA

#include "tests/support/test.h"

// Conversions against rules written out here: the value of every pattern, and, for numbers that are rounded
// to 16 bits, the nearest of the two neighbours in the table of all values.

namespace vox {
namespace {

/// Bits of exponent and of fraction.
template <class T>
struct Format;
template <>
struct Format<bfloat16> {
  static constexpr int exponent = 8, fraction = 7;
};
template <>
struct Format<float16> {
  static constexpr int exponent = 5, fraction = 10;
};

/// The number that a pattern represents, by IEEE 754's definition.
template <class T>
double value_of(uint16_t bits) {
  using F = Format<T>;
  const int bias = (1 << (F::exponent - 1)) - 1, top = (1 << F::exponent) - 1;
  const int e = bits >> F::fraction & top, f = bits & ((1 << F::fraction) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (e == top) return f ? nan : sign * inf;
  if (e == 0) return sign * std::ldexp(f, 1 - bias - F::fraction);
  return sign * std::ldexp((1 << F::fraction) + f, e - bias - F::fraction);
}

template <class T>
constexpr uint16_t infinity_bits = static_cast<uint16_t>(((1 << Format<T>::exponent) - 1)
                                                         << Format<T>::fraction);

/// The pattern that a finite x >= 0 rounds to, found in the table: the patterns of positive numbers rise with
/// their values, and infinity counts as 2^emax + 1.
template <class T>
uint16_t nearest(double x) {
  uint16_t low = 0, high = infinity_bits<T>;
  const double beyond = std::ldexp(1, 1 << (Format<T>::exponent - 1));  // what infinity counts as
  const auto at = [&](uint16_t bits) { return bits == infinity_bits<T> ? beyond : value_of<T>(bits); };
  if (x >= beyond) return high;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (at(middle) <= x ? low : high) = middle;
  }
  const double below = x - at(low), above = at(high) - x;  // exact: neighbours in a short format
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

template <class T>
class HalfTest : public ::testing::Test {};
using HalfTypes = ::testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(HalfTest, HalfTypes);

TYPED_TEST(HalfTest, EveryPatternHasItsValueAndComesBack) {
  using T = TypeParam;
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const T x = T::from_bits(bits);
    const double expected = value_of<T>(bits), got = static_cast<float>(x);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << i;
      ASSERT_EQ(T(got).bits, 0x7fff) << i;
      ASSERT_EQ(T(static_cast<float>(x)).bits, 0x7fff) << i;
    } else {
      ASSERT_EQ(got, expected) << i;
      ASSERT_EQ(std::signbit(got), std::signbit(expected)) << i;
      ASSERT_EQ(T(got).bits, bits) << i;
      ASSERT_EQ(T(static_cast<float>(x)).bits, bits) << i;
    }
  }
}

TYPED_TEST(HalfTest, TiesAndTheirNeighboursBetweenAllNumbers) {
  using T = TypeParam;
  for (int i = 0; i < infinity_bits<T>; ++i) {
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const double a = value_of<T>(low);
    const double b =
        high == infinity_bits<T> ? 2 * a - value_of<T>(static_cast<uint16_t>(i - 1)) : value_of<T>(high);
    const double tie = (a + b) / 2;
    const uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(T(tie).bits, even) << i;
    ASSERT_EQ(T(-tie).bits, even | 0x8000) << i;
    ASSERT_EQ(T(std::nextafter(tie, 0)).bits, low) << i;  // in double: a float would be the tie itself
    ASSERT_EQ(T(std::nextafter(tie, inf)).bits, high) << i;
    const auto tie32 = static_cast<float>(tie);
    ASSERT_EQ(static_cast<double>(tie32), tie) << i;  // every tie is a float
    ASSERT_EQ(T(tie32).bits, even) << i;
    ASSERT_EQ(T(std::nextafter(tie32, 0.f)).bits, low) << i;
    ASSERT_EQ(T(std::nextafter(tie32, 1e38f * 10)).bits, high) << i;
    ASSERT_EQ(T(static_cast<float>(a + (b - a) / 4)).bits, low) << i;
  }
}

TYPED_TEST(HalfTest, FloatsOfAllMagnitudesRoundToTheNearest) {
  using T = TypeParam;
  uint32_t state = 12345;
  for (int i = 0; i < 400000; ++i) {
    state = state * 1664525 + 1013904223;
    float x;
    std::memcpy(&x, &state, 4);
    if (!std::isfinite(x)) continue;
    const auto expected =
        static_cast<uint16_t>(nearest<T>(std::abs(static_cast<double>(x))) | (state >> 31 << 15));
    ASSERT_EQ(T(x).bits, expected) << x;
    ASSERT_EQ(T(static_cast<double>(x)).bits, expected) << x;
  }
}

TYPED_TEST(HalfTest, OverflowUnderflowAndSpecials) {
  using T = TypeParam;
  const uint16_t infinity = infinity_bits<T>;
  for (const double huge : {1e39, 1e300, inf, 0x1p128, 0x1.ffffffp127}) {
    EXPECT_EQ(T(huge).bits, infinity) << huge;
    EXPECT_EQ(T(-huge).bits, infinity | 0x8000) << huge;
    EXPECT_EQ(T(static_cast<float>(huge)).bits, infinity) << huge;
  }
  for (const double tiny : {1e-46, 1e-300, 0., 0x1p-149}) {
    EXPECT_EQ(T(tiny).bits, 0) << tiny;
    EXPECT_EQ(T(-tiny).bits, 0x8000) << tiny;
    EXPECT_EQ(T(static_cast<float>(-tiny)).bits, 0x8000) << tiny;
  }
  EXPECT_EQ(T(nan).bits, 0x7fff);
  EXPECT_EQ(T(-nan).bits, 0x7fff);
  EXPECT_EQ(T(std::numeric_limits<float>::signaling_NaN()).bits, 0x7fff);
}

TYPED_TEST(HalfTest, IntegersRoundOnce) {
  using T = TypeParam;
  for (int64_t i = -70000; i <= 70000; i += 7) {
    const auto expected =
        static_cast<uint16_t>(nearest<T>(std::abs(static_cast<double>(i))) | (i < 0 ? 0x8000 : 0));
    ASSERT_EQ(T(i).bits, expected) << i;
    ASSERT_EQ(T(static_cast<int>(i)).bits, expected) << i;
    ASSERT_EQ(T(static_cast<float>(i)).bits, expected) << i;
  }
  EXPECT_EQ(T(true).bits, T(1).bits);
  EXPECT_EQ(T(uint8_t{255}).bits, T(255).bits);
}

TEST(Half, WideNumbersDoNotRoundTwice) {
  // Above a tie of bfloat16 by less than double, and then float, can represent.
  const int64_t tie = (int64_t{1} << 62) + (int64_t{1} << 54);
  EXPECT_EQ(bfloat16(tie).bits, 0x5e80);
  EXPECT_EQ(bfloat16(tie + 1).bits, 0x5e81);
  EXPECT_EQ(bfloat16(tie - 1).bits, 0x5e80);
  EXPECT_EQ(bfloat16(-tie - 1).bits, 0xde81);
  EXPECT_EQ(bfloat16(-tie + 1).bits, 0xde80);
  EXPECT_EQ(bfloat16(tie + (int64_t{1} << 55) - 1).bits, 0x5e81);
  EXPECT_EQ(bfloat16(std::numeric_limits<int64_t>::max()).bits, 0x5f00);
  EXPECT_EQ(bfloat16(std::numeric_limits<int64_t>::min()).bits, 0xdf00);
  EXPECT_EQ(bfloat16(std::numeric_limits<uint64_t>::max()).bits, 0x5f80);
  EXPECT_EQ(bfloat16((uint64_t{1} << 63) + (uint64_t{1} << 55)).bits, 0x5f00);
  EXPECT_EQ(bfloat16((uint64_t{1} << 63) + (uint64_t{1} << 55) + 1).bits, 0x5f01);
  EXPECT_EQ(bfloat16(1 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
  EXPECT_EQ(bfloat16(1 + 0x1p-8).bits, 0x3f80);
  EXPECT_EQ(float16(1 + 0x1p-11 + 0x1p-50).bits, 0x3c01);
  EXPECT_EQ(float16(0x1p-25 + 0x1p-70).bits, 0x0001);
  EXPECT_EQ(float16(0x1p-25).bits, 0x0000);
}

TEST(Half, OfTheOtherFormat) {
  EXPECT_EQ(float16(bfloat16(0.1f)).bits, float16(0.10009765625).bits);
  EXPECT_EQ(bfloat16(float16(65504)).bits, 0x4780);
  EXPECT_EQ(bfloat16(3.14159265f).bits, 0x4049);
  EXPECT_EQ(float16(0.1f).bits, 0x2e66);
}

TEST(Half, ConstantsOfTheCompilerAreTheSame) {
  static_assert(bfloat16(1.5).bits == 0x3fc0 && float16(1.5).bits == 0x3e00);
  static_assert(float16(0x1p-24).bits == 1 && float16(0x1p-15f).bits == 0x0200 &&
                float16(1e300).bits == 0x7c00);
  static_assert(bfloat16(int64_t{257}).bits == 0x4380 &&
                static_cast<float>(float16::from_bits(1)) == 0x1p-24f);
  static_assert(bfloat16(2.f) + float16(3.f) == 5.f && bfloat16(2) < bfloat16(3) &&
                !(bfloat16(1) == float16(2)));
  static_assert(std::is_trivial_v<bfloat16> && std::is_trivial_v<float16> && sizeof(bfloat16) == 2 &&
                sizeof(float16) == 2);
  static_assert(!std::is_convertible_v<float, bfloat16> && std::is_convertible_v<bfloat16, float>);
}

TYPED_TEST(HalfTest, Limits) {
  using T = TypeParam;
  using L = std::numeric_limits<T>;
  EXPECT_EQ(L::infinity().bits, infinity_bits<T>);
  EXPECT_EQ(L::max().bits, infinity_bits<T> - 1);
  EXPECT_EQ(static_cast<float>(L::lowest()), -static_cast<float>(L::max()));
  EXPECT_EQ(L::min().bits, 1 << Format<T>::fraction);
  EXPECT_EQ(static_cast<float>(L::min()), std::ldexp(1, L::min_exponent - 1));
  EXPECT_EQ(L::digits, Format<T>::fraction + 1);
  EXPECT_EQ(static_cast<float>(L::epsilon()), std::ldexp(1, -Format<T>::fraction));
  EXPECT_LT(static_cast<double>(L::max()), std::ldexp(1, L::max_exponent));
  EXPECT_TRUE(std::isnan(static_cast<float>(L::quiet_NaN())));
  EXPECT_EQ(L::denorm_min().bits, 1);
}

}  // namespace
}  // namespace vox

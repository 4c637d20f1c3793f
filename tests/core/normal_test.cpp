#include <voxgrad/core/normal.h>

#include "tests/support/test.h"

namespace vox::detail {
namespace {

/// Distance to the exact value, given in long double, in units of the last place of that value.
double ulps(double got, long double exact) {
  int exponent = 0;
  std::frexp(static_cast<double>(exact), &exponent);
  return static_cast<double>(std::abs(got - exact) / std::ldexp(1.0L, exponent - 53));
}

TEST(Normal, LogIsWithinTwoUlp) {
  double worst = 0;
  for (int i = 1; i <= 1'000'000; ++i) {
    const double x = i * 1e-6;
    if (i < 1'000'000) worst = std::max(worst, ulps(log_rounded(x), std::log(static_cast<long double>(x))));
  }
  for (int e = 1; e <= 53; ++e) {
    for (double m : {1.0, 1.2, 1.4142135623730949, 1.4142135623730951, 1.4142135623730954, 1.9999999}) {
      const double x = std::ldexp(m, -e);
      worst = std::max(worst, ulps(log_rounded(x), std::log(static_cast<long double>(x))));
    }
  }
  for (double x = 1 - 0x1p-53; x > 0.5; x -= (1 - x))
    worst = std::max(worst, ulps(log_rounded(x), std::log(static_cast<long double>(x))));
  EXPECT_LT(worst, 2);
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_EQ(log_rounded(1.0), 0.0);
}

TEST(Normal, SinCosIsWithinAnUlpOfOne) {
  double worst = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const double t = i * 1e-6;
    const SinCos got = sincos_turns(t);
    const long double angle = 2 * std::numbers::pi_v<long double> * t;
    worst = std::max(worst, static_cast<double>(std::abs(got.sin - std::sin(angle))));
    worst = std::max(worst, static_cast<double>(std::abs(got.cos - std::cos(angle))));
  }
  EXPECT_LT(worst, std::numeric_limits<double>::epsilon());
  RecordProperty("worst_error", std::to_string(worst * 0x1p52));
}

TEST(Normal, SinCosIsExactAtQuarterTurns) {
  const double expected_sin[] = {0, 1, 0, -1}, expected_cos[] = {1, 0, -1, 0};
  for (int q = 0; q < 4; ++q) {
    const SinCos got = sincos_turns(q * 0.25);
    EXPECT_EQ(got.sin, expected_sin[q]) << q;
    EXPECT_EQ(got.cos, expected_cos[q]) << q;
  }
  const SinCos last = sincos_turns(1 - 0x1p-53);
  EXPECT_EQ(last.cos, 1);
  EXPECT_NEAR(last.sin, -2 * std::numbers::pi * 0x1p-53, 1e-30);
}

TEST(Normal, BoxMullerOfKnownAngles) {
  const double u = std::exp(-2.0);  // radius 2
  EXPECT_NEAR(box_muller(u, 0).first, 2, 1e-15);
  EXPECT_EQ(box_muller(u, 0).second, 0);
  EXPECT_NEAR(box_muller(u, 0.25).second, 2, 1e-15);
  EXPECT_EQ(box_muller(1, 0.3).first, 0);  // log 1 = 0
}

}  // namespace
}  // namespace vox::detail

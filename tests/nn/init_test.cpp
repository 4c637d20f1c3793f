#include "tests/support/test.h"

namespace vox {
namespace {

struct Moments {
  double mean, std, largest;
};
Moments moments(const Tensor& t) {
  Moments m{0, 0, 0};
  const std::vector<double> v = t.to_vector<double>();
  for (double x : v)
    m.mean += x / static_cast<double>(v.size()), m.largest = std::max(m.largest, std::abs(x));
  for (double x : v) m.std += (x - m.mean) * (x - m.mean) / static_cast<double>(v.size());
  m.std = std::sqrt(m.std);
  return m;
}

TEST(InitTest, FansCountTheKernel) {
  const Tensor w = zeros({6, 4, 2, 3, 5});
  EXPECT_EQ(nn::init::fan_in(w), 4 * 30);
  EXPECT_EQ(nn::init::fan_out(w), 6 * 30);
  EXPECT_EQ(nn::init::fan_in(zeros({6, 4})), 4);
  EXPECT_THROW(nn::init::fan_in(zeros({6})), ShapeError);
}

// Standard errors with 25600 draws: mean std/160, std std/226 at most.
TEST(InitTest, DistributionsHaveTheirMoments) {
  manual_seed(3);
  Tensor w = zeros({64, 100, 2, 2, 1}, {.dtype = f64});
  nn::init::kaiming_normal_(w);
  EXPECT_NEAR(moments(w).mean, 0, 5 * std::sqrt(2.0 / 400) / 160);
  EXPECT_NEAR(moments(w).std / std::sqrt(2.0 / 400), 1, 5 / 226.0);

  nn::init::xavier_uniform_(w);
  const double bound = std::sqrt(6.0 / (400 + 256));
  EXPECT_LE(moments(w).largest, bound);
  EXPECT_NEAR(moments(w).std / (bound / std::sqrt(3)), 1, 5 / 226.0);

  nn::init::uniform_(w, 2, 3);
  EXPECT_NEAR(moments(w).mean, 2.5, 5 * std::sqrt(1 / 12.0) / 160);
  nn::init::normal_(w, -1, 0.5);
  EXPECT_NEAR(moments(w).mean, -1, 5 * 0.5 / 160);
  EXPECT_NEAR(moments(w).std, 0.5, 5 * 0.5 / 226);
}

TEST(InitTest, ATruncatedNormalHasItsMomentsAndBounds) {
  manual_seed(3);
  Tensor w = zeros({25600}, {.dtype = f64});
  nn::init::trunc_normal_(w, 3, 2, 1, 7);  // 3 + 2 z with z in [-1, 2], whose mean is 0.2296 and std 0.7209
  EXPECT_NEAR(moments(w).mean, 3 + 2 * 0.22963717909132897, 5 * 1.44 / 160);
  EXPECT_NEAR(moments(w).std, 2 * 0.7209455868590458, 5 * 1.44 / 160);
  for (double v : w.to_vector<double>()) EXPECT_TRUE(v >= 1 && v <= 7);
  // The whole line: deciles are those of the normal distribution.
  nn::init::trunc_normal_(w, 0, 1, -40, 40);
  std::vector<double> v = w.to_vector<double>();
  std::sort(v.begin(), v.end());
  EXPECT_NEAR(v[25600 / 2], 0, 5 * 1.2533 / 160);
  EXPECT_NEAR(v[25600 / 10 * 9], 1.2815515655446008, 5 * 1.71 / 160);
  nn::init::trunc_normal_(w, 0, 1, 30, 31);  // beyond the precision of the distribution: a bound
  for (double x : w.to_vector<double>()) EXPECT_TRUE(x >= 30 && x <= 31);
  EXPECT_ERRORS(ValueError, nn::init::trunc_normal_(w, 0, 0), nn::init::trunc_normal_(w, 0, 1, 2, -2));
}

TEST(InitTest, IcnrRepeatsTheChannelsOfOneCell) {
  Tensor w = zeros({16, 3, 1, 2, 3});
  nn::init::icnr_(w, 2);
  for (int64_t c = 0; c < 16; ++c) EXPECT_TRUE(equal(w[c], w[c / 8 * 8])) << c;
  EXPECT_FALSE(equal(w[0], w[8]));
  EXPECT_THROW(nn::init::icnr_(w, 3), ShapeError);
  EXPECT_THROW(nn::init::icnr_(w, 0), ValueError);
}

TEST(InitTest, WritesAParameterInPlace) {
  Tensor w = ones({3});
  w.set_requires_grad(true);
  const Tensor same = w;
  nn::init::uniform_(w, 5, 5);
  EXPECT_EQ(same.to_vector<float>(), (Floats{5, 5, 5}));
  EXPECT_TRUE(w.requires_grad() && w.is_leaf());
  EXPECT_ERRORS(ValueError, nn::init::uniform_(w, 1, 0), nn::init::normal_(w, 0, -1));
}

}  // namespace
}  // namespace vox

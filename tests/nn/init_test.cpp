#include <voxgrad/core/factories.h>
#include <voxgrad/nn/init.h>

#include <gtest/gtest.h>

#include <cmath>

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

TEST(InitTest, WritesAParameterInPlace) {
  Tensor w = ones({3});
  w.set_requires_grad(true);
  const Tensor same = w;
  nn::init::uniform_(w, 5, 5);
  EXPECT_EQ(same.to_vector<float>(), (std::vector<float>{5, 5, 5}));
  EXPECT_TRUE(w.requires_grad() && w.is_leaf());
  EXPECT_THROW(nn::init::uniform_(w, 1, 0), ValueError);
  EXPECT_THROW(nn::init::normal_(w, 0, -1), ValueError);
}

}  // namespace
}  // namespace vox

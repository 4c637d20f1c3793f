#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/loss.h>
#include <voxgrad/ops/reduce.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/devices.h"
#include "tests/support/values.h"

namespace vox {
namespace {

using namespace vox::testing;
using Floats = std::vector<float>;

class LossTest : public DeviceTest {
 protected:
  Tensor make(const Floats& values, const Shape& shape) {
    return from_vector<float>(values, shape, device());
  }
  Tensor classes(const std::vector<int64_t>& values, const Shape& shape) {
    return from_vector<int64_t>(values, shape, device());
  }
};
INSTANTIATE_TEST_SUITE_P(, LossTest, devices(), device_name);

TEST_P(LossTest, SquaresAndAbsoluteValues) {
  Tensor x = make({1, 2, 3, 4}, {2, 2}).set_requires_grad();
  const Tensor t = make({1, 4, 0, 3}, {2, 2});
  EXPECT_EQ(mse_loss(x, t, Reduction::none).to_vector<float>(), (Floats{0, 4, 9, 1}));
  EXPECT_EQ(mse_loss(x, t, Reduction::sum).item<float>(), 14);
  EXPECT_EQ(mse_loss(x, t).item<float>(), 3.5);
  EXPECT_EQ(l1_loss(x, t, Reduction::none).to_vector<float>(), (Floats{0, 2, 3, 1}));
  EXPECT_EQ(l1_loss(x, t, Reduction::sum).item<float>(), 6);
  EXPECT_EQ(l1_loss(x, t).item<float>(), 1.5);
  mse_loss(x, t).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, -1, 1.5, 0.5}));
  x.zero_grad();
  l1_loss(x, t).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, -0.25, 0.25, 0.25}));
}

TEST_P(LossTest, CrossEntropyByHand) {
  const float log3 = std::log(3.0f);
  Tensor x = make({0, log3, 0, 0}, {2, 2}).set_requires_grad();  // probabilities 1/4 3/4, 1/2 1/2
  const Tensor t = classes({0, 1}, {2});
  const auto each = cross_entropy(x, t, Reduction::none).to_vector<float>();
  EXPECT_NEAR(each[0], std::log(4.0), 1e-6);
  EXPECT_NEAR(each[1], std::log(2.0), 1e-6);
  EXPECT_NEAR(cross_entropy(x, t, Reduction::sum).item<float>(), std::log(8.0), 1e-6);
  EXPECT_NEAR(cross_entropy(x, t).item<float>(), std::log(8.0) / 2, 1e-6);
  cross_entropy(x, t, Reduction::sum).backward();
  const auto g = x.grad().to_vector<float>();
  const Floats expected{-0.75, 0.75, 0.5, -0.5};  // softmax - one hot
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(g[i], expected[i], 1e-6);
}

TEST_P(LossTest, CrossEntropyOfVolumes) {
  const Tensor x = normal({2, 3, 2, 1, 2}, {f64, device()});
  const Tensor t = classes({0, 2, 1, 1, 2, 0, 0, 1}, {2, 2, 1, 2});
  const auto loss = cross_entropy(x, t, Reduction::none);
  EXPECT_EQ(loss.shape(), t.shape());
  const Tensor strided = t.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_TRUE(same_bits(cross_entropy(x, strided, Reduction::none), loss));
  const auto logp = log_softmax(x, 1).to_vector<double>();
  const auto c = t.to_vector<int64_t>();
  const auto y = loss.to_vector<double>();
  for (size_t n = 0; n < 2; ++n) {
    for (size_t v = 0; v < 4; ++v)
      EXPECT_EQ(y[n * 4 + v], -logp[(n * 3 + static_cast<size_t>(c[n * 4 + v])) * 4 + v]);
  }
}

TEST_P(LossTest, AnImpossibleOtherClassDoesNoHarm) {
  Tensor x = make({0, -std::numeric_limits<float>::infinity()}, {1, 2}).set_requires_grad();
  Tensor loss = cross_entropy(x, classes({0}, {1}));
  EXPECT_EQ(loss.item<float>(), 0);
  loss.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 0}));
}

TEST_P(LossTest, ClassesOutOfRangeAreRefused) {
  const Tensor x = make({0, 1, 2, 3, 4, 5}, {2, 3});
  for (int64_t bad : {int64_t{-1}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    const Tensor t = classes({1, bad}, {2});
    if (device().is_cpu()) {
      EXPECT_THROW(cross_entropy(x, t), ValueError);
      continue;
    }
    const auto each = cross_entropy(x, t, Reduction::none).to_vector<float>();
    EXPECT_FALSE(std::isnan(each[0]));
    EXPECT_TRUE(std::isnan(each[1]));
    EXPECT_TRUE(std::isnan(cross_entropy(x, t).item<float>()));
  }
}

TEST(LossCpuTest, WhereThereIsNoClassTheMessageSaysSo) {
  const auto message = [](const Shape& shape) -> std::string {
    try {
      cross_entropy(zeros(shape), from_vector<int64_t>({0, 3}, {2}));
    } catch (const ValueError& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  };
  EXPECT_EQ(message({2, 3}), "cross_entropy: target holds classes from 0 to 3; allowed are 0 to 2");
  EXPECT_EQ(message({2, 0}), "cross_entropy: target holds classes from 0 to 3, but input (2,0) has none");
}

TEST_P(LossTest, GradientsAgreeWithNumbers) {
  const auto leaf = [&](const Shape& shape, unsigned seed) {
    return normal(shape, {f64, device()}, seed).set_requires_grad();
  };
  const Tensor t = classes({0, 2, 1, 1}, {2, 2});
  for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    const auto mse = [&](const std::vector<Tensor>& in) { return mse_loss(in[0], in[1], reduction); };
    const auto l1 = [&](const std::vector<Tensor>& in) { return l1_loss(in[0], in[1], reduction); };
    const auto entropy = [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], t, reduction); };
    const auto check = [](const autograd::TensorFunction& f, const std::vector<Tensor>& inputs) {
      EXPECT_TRUE(autograd::gradcheck(f, inputs));
      EXPECT_TRUE(autograd::gradgradcheck(f, inputs));
    };
    for (const auto& loss : {autograd::TensorFunction(mse), autograd::TensorFunction(l1)}) {
      check(loss, {leaf({2, 3}, 1), leaf({2, 3}, 2)});
      check(
          [&](const std::vector<Tensor>& in) {  // strided, and expanded
            return loss({in[0].transpose(0, 1).slice(0, 0, 3, 2), in[1].expand({2, 2})});
          },
          {leaf({2, 3}, 1), leaf({2, 1}, 2)});
    }
    check(entropy, {leaf({2, 3, 2}, 1)});
    check(
        [&](const std::vector<Tensor>& in) {
          return entropy({in[0].permute({2, 1, 0})});
        },
        {leaf({2, 3, 2}, 1)});
    check(
        [&](const std::vector<Tensor>& in) {
          return entropy({in[0].expand({2, 3, 2})});
        },
        {leaf({2, 3, 1}, 1)});
  }
}

TEST_P(LossTest, Errors) {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_THROW(mse_loss(x, make({1, 2, 3}, {3})), ShapeError);
  EXPECT_THROW(l1_loss(x, x.reshape({3, 2})), ShapeError);
  EXPECT_THROW(mse_loss(x, x.to(f64)), DTypeError);
  EXPECT_THROW(l1_loss(x.to(i64), x.to(i64)), DTypeError);
  EXPECT_THROW(mse_loss(x, Tensor()), ValueError);
  EXPECT_THROW(cross_entropy(x, classes({0, 1, 2}, {3})), ShapeError);
  EXPECT_THROW(cross_entropy(x.flatten(), classes({0}, {})), ShapeError);
  EXPECT_THROW(cross_entropy(x, make({0, 1}, {2})), DTypeError);
  EXPECT_THROW(cross_entropy(x.to(i64), classes({0, 1}, {2})), DTypeError);
  EXPECT_THROW(cross_entropy(Tensor(), classes({0, 1}, {2})), ValueError);
}

}  // namespace
}  // namespace vox

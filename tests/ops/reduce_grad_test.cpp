#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/reduce.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/devices.h"
#include "tests/support/values.h"

namespace vox {
namespace {

using namespace vox::testing;
using autograd::gradcheck;
using autograd::gradgradcheck;
using Floats = std::vector<float>;

class ReduceGradTest : public DeviceTest {
 protected:
  Tensor leaf(const std::vector<float>& values, const Shape& shape) {
    return from_vector<float>(values, shape, device()).set_requires_grad();
  }

  /// Checks f of a dense leaf, of a permuted one, and of one expanded from a slice, to first and second
  /// order. f must square its argument or its result somewhere, or the second order is trivial.
  void check(const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = normal({2, 3, 4}, {f64, device()}).set_requires_grad();
    const Tensor row = normal({3, 1}, {f64, device()}, 2).set_requires_grad();
    const auto dense = [&](const std::vector<Tensor>& in) { return f(in[0]); };
    const auto permuted = [&](const std::vector<Tensor>& in) { return f(in[0].permute({2, 0, 1})); };
    const auto expanded = [&](const std::vector<Tensor>& in) { return f(in[0].expand({2, 3, 4}) * in[1]); };
    EXPECT_TRUE(gradcheck(dense, {x}));
    EXPECT_TRUE(gradgradcheck(dense, {x}));
    EXPECT_TRUE(gradcheck(permuted, {x}));
    EXPECT_TRUE(gradgradcheck(permuted, {x}));
    EXPECT_TRUE(gradcheck(expanded, {row, x}));
    EXPECT_TRUE(gradgradcheck(expanded, {row, x}));
  }
};
INSTANTIATE_TEST_SUITE_P(, ReduceGradTest, devices(), device_name);

TEST_P(ReduceGradTest, SumSpreadsTheGradient) {
  Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  sum(x, {0}).backward(from_vector<float>({1, 10, 100}, {3}, device()));
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{1, 10, 100, 1, 10, 100}));
}

TEST_P(ReduceGradTest, MeanSpreadsAShareOfIt) {
  Tensor x = leaf({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4});
  mean(x, {1}).backward(from_vector<float>({4, 8}, {2}, device()));
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST_P(ReduceGradTest, TheMeanOfNothingHasASecondGradientOfZero) {
  const Tensor x = leaf({}, {0}), w = leaf({1}, {});
  const Tensor g = grad({mean(x)}, {x}, {.grad_outputs = {w}, .create_graph = true})[0];
  EXPECT_EQ(g.shape(), Shape{0});
  EXPECT_EQ(grad({sum(g)}, {w})[0].item<float>(), 0);
}

TEST_P(ReduceGradTest, TiesShareTheGradient) {
  Tensor x = leaf({7, 1, 7, 1, 2, 3}, {2, 3});
  max(x, {1}).backward(from_vector<float>({6, 5}, {2}, device()));
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{3, 0, 3, 0, 0, 5}));
  x.zero_grad();
  min(x).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 0.5, 0, 0.5, 0, 0}));
}

TEST_P(ReduceGradTest, ANaNThatWonTakesTheGradient) {
  Tensor x = leaf({1, std::numeric_limits<float>::quiet_NaN(), 3}, {3});
  max(x).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 1, 0}));
  Tensor two = leaf({NAN, 1, NAN}, {3});
  min(two).backward();
  EXPECT_EQ(two.grad().to_vector<float>(), (Floats{0.5, 0, 0.5}));
}

TEST_P(ReduceGradTest, AnInfiniteGradientReachesOnlyTheWinner) {
  Tensor x = leaf({1, 2, 3}, {3});
  max(x).backward(full({}, std::numeric_limits<double>::infinity(), {f32, device()}));
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 0, std::numeric_limits<float>::infinity()}));
}

TEST_P(ReduceGradTest, IndicesAndIntegersAreNotRecorded) {
  const Tensor x = leaf({1, 2, 3}, {3});
  EXPECT_FALSE(argmax(x).requires_grad());
  EXPECT_FALSE(sum(gt(x, 0)).requires_grad());
}

TEST_P(ReduceGradTest, NumbersAgree) {
  check([](const Tensor& x) { return sum(x * x, {1}); });
  check([](const Tensor& x) { return sum(x, {0, 2}, true) * sum(x, {1, 2}, true); });
  check([](const Tensor& x) { return mean(x * x * x); });
  check([](const Tensor& x) { return mean(x, {-1}) * sum(x, {-1}); });
  check([](const Tensor& x) { return max(x * x, {1}); });
  check([](const Tensor& x) { return min(x, {0, 2}) * mean(x); });
  check([](const Tensor& x) { return sum_to(x * x, {x.size(1), 1}); });
}

TEST_P(ReduceGradTest, SoftmaxNumbersAgree) {
  check([](const Tensor& x) { return softmax(x, 1); });
  check([](const Tensor& x) { return log_softmax(x, -1); });
  check([](const Tensor& x) { return softmax(x, 0) * log_softmax(x, 0); });
}

}  // namespace
}  // namespace vox

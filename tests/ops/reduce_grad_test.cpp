#include "tests/support/test.h"

namespace vox {
namespace {

class ReduceGradTest : public DeviceTest {
 protected:
  Tensor leaf(const std::vector<float>& values, const Shape& shape) {
    return from_vector<float>(values, shape, device()).set_requires_grad();
  }
};
INSTANTIATE_TEST_SUITE_P(, ReduceGradTest, devices(), device_name);

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
  EXPECT_EQ(grad({min(two)}, {two}, {.create_graph = true})[0].to_vector<float>(), (Floats{0.5, 0, 0.5}));
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

}  // namespace
}  // namespace vox

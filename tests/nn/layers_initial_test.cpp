#include <voxgrad/core/factories.h>
#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/linear.h>

#include "tests/support/devices.h"
#include "tests/support/values.h"

#include <cmath>

namespace vox {
namespace {

class LayersInitialTest : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, LayersInitialTest, testing::devices(), testing::device_name);

/// All elements within +-bound, their extremes near it, their mean and variance those of the uniform
/// distribution within 5 standard errors.
void expect_uniform(const Tensor& t, double bound) {
  const std::vector<double> v = t.detach().to(f64).to_vector<double>();
  const auto n = static_cast<double>(v.size());
  double sum = 0, square = 0, largest = 0;
  for (double x : v) {
    ASSERT_LE(std::abs(x), bound);
    sum += x, square += x * x, largest = std::max(largest, std::abs(x));
  }
  EXPECT_GT(largest, bound * (1 - 20 / n));
  EXPECT_LT(std::abs(sum / n), 5 * bound / std::sqrt(3 * n));
  EXPECT_LT(std::abs(square / n - bound * bound / 3), 5 * bound * bound * std::sqrt(4 / (45 * n)));
}

TEST_P(LayersInitialTest, InitialValuesAreUniformWithPyTorchsBounds) {
  manual_seed(7);
  const TensorOptions o = {.dtype = f32, .device = device()};
  nn::Linear linear({.in_features = 64, .out_features = 500, .tensor = o});
  expect_uniform(linear.weight, 1 / 8.0);
  expect_uniform(linear.bias, 1 / 8.0);
  nn::Conv3d conv(
      {.in_channels = 8, .out_channels = 400, .kernel_size = {3, 2, 3}, .groups = 2, .tensor = o});
  expect_uniform(conv.weight, 1 / std::sqrt(4 * 18));
  expect_uniform(conv.bias, 1 / std::sqrt(4 * 18));
  nn::ConvTranspose3d up(
      {.in_channels = 8, .out_channels = 400, .kernel_size = {3, 2, 3}, .groups = 2, .tensor = o});
  expect_uniform(up.weight, 1 / std::sqrt(200 * 18));  // shape[1] counts, as in PyTorch, not the sums' length
  expect_uniform(up.bias, 1 / std::sqrt(200 * 18));
  nn::Conv1d one({.in_channels = 9, .out_channels = 300, .kernel_size = 4, .tensor = o});
  expect_uniform(one.weight, 1 / 6.0);
  nn::ConvTranspose2d two({.in_channels = 300, .out_channels = 9, .kernel_size = {2, 2}, .tensor = o});
  expect_uniform(two.weight, 1 / 6.0);
}

TEST(LayersSeedTest, SameSeedSameWeightsAndOtherSeedOthers) {
  const auto weight = [](uint64_t seed) {
    manual_seed(seed);
    return nn::Linear({.in_features = 5, .out_features = 5}).weight;
  };
  EXPECT_TRUE(testing::same_bits(weight(1), weight(1)));
  EXPECT_FALSE(testing::same_bits(weight(1), weight(2)));
}

}  // namespace
}  // namespace vox

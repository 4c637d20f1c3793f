#include <gtest/gtest.h>

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/ops/conv3d.h>

#include "tests/support/conv3d.h"
#include "tests/support/devices.h"

// R7: outputs of exactly 2^31 and of more than 2^32 elements, compared at samples. GPU only: 20 GB at most
// for one tensor.

namespace vox {
namespace {

float at(const Tensor& t, std::array<int64_t, 5> index) {
  Tensor element = t;
  for (const int64_t i : index) element = element.select(0, i);
  return element.item<float>();
}

struct Large {
  const char* name;
  Shape input;
  int64_t numel;  // of the output
};

class Conv3dLargeCuda : public ::testing::TestWithParam<Large> {
 protected:
  void SetUp() override {
    if (!testing::has_cuda()) GTEST_SKIP() << "no CUDA device";
  }
};
// Stride and kernel (2,1,1) double the depth: y[2d + k] = w[k] * x[d].
INSTANTIATE_TEST_SUITE_P(
    , Conv3dLargeCuda,
    ::testing::Values(Large{"ExactlyTwoTo31", {1, 1, 1024, 1024, 1024}, int64_t{1} << 31},
                      Large{"BatchBeyondTwoTo32", {5, 1, 512, 1024, 1024}, 5 * (int64_t{1} << 30)},
                      Large{"VolumeBeyondTwoTo32", {1, 1, 2049, 1024, 1024}, 4098 * (int64_t{1} << 20)}),
    [](const auto& info) { return info.param.name; });

TEST_P(Conv3dLargeCuda, ForwardAndBackwardAtSamples) {
  const Device device = Device::cuda();
  const Shape& shape = GetParam().input;
  Tensor x = randint(-4, 5, shape, {.device = device});
  Tensor w = testing::tensor({3, -2}, {1, 1, 2, 1, 1}, f32, device);
  const ConvTranspose3dOptions up{.stride = {2, 1, 1}};
  Tensor y = conv_transpose3d(x, w, testing::tensor({1}, {1}, f32, device), up);
  ASSERT_EQ(y.numel(), GetParam().numel);

  std::mt19937_64 random(1);
  std::vector<std::array<int64_t, 5>> samples{{0, 0, 0, 0, 0},
                                              {shape[0] - 1, 0, shape[2] - 1, shape[3] - 1, shape[4] - 1}};
  for (int i = 0; i < 100; ++i) {
    std::array<int64_t, 5> sample;
    for (size_t a = 0; a < 5; ++a)
      sample[a] = static_cast<int64_t>(random() % static_cast<uint64_t>(shape[static_cast<int64_t>(a)]));
    samples.push_back(sample);
  }
  for (const auto& s : samples) {
    const float value = at(x, s);
    for (int64_t k = 0; k < 2; ++k)
      EXPECT_EQ(at(y, {s[0], s[1], 2 * s[2] + k, s[3], s[4]}), value * (k == 0 ? 3 : -2) + 1);
  }

  // Reading the large grid: conv3d gives w0 * y[2d] + w1 * y[2d+1] = 13 x + 1. The weight gradient of ones is
  // the sum of each half, exact in f32 because the sums stay far below 2^24.
  Tensor down = conv3d(y, w, {}, {.stride = {2, 1, 1}});
  ASSERT_EQ(down.shape(), shape);
  for (const auto& s : samples) EXPECT_EQ(at(down, s), 13 * at(x, s) + 1);
  down = {};
  const Tensor ones_of_y = ones(y.shape(), y.options());
  const Tensor dw = conv3d_weight_grad(ones_of_y, x, {2, 1, 1}, {.stride = {2, 1, 1}});
  const float total = x.sum().item<float>();
  EXPECT_EQ(testing::values(dw), (testing::Values{total, total}));
}

}  // namespace
}  // namespace vox

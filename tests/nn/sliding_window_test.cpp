// Windows over volumes: the plan and the weights are nnU-Net's, and every cell gets the weighted mean.
#include "tests/support/test.h"

namespace vox::nn {
namespace {

using Starts = Ints;

double largest(const Tensor& x) { return abs(x).max().item(); }

TEST(SlidingWindow, PlanIsThatOfNnUnet) {
  // Recorded from nnU-Net 2.5, compute_steps_for_sliding_window.
  EXPECT_EQ(window_starts(10, 10, 0.5), (Starts{0}));
  EXPECT_EQ(window_starts(11, 10, 0.5), (Starts{0, 1}));
  EXPECT_EQ(window_starts(110, 64, 0.5), (Starts{0, 23, 46}));
  EXPECT_EQ(window_starts(125, 64, 0.5), (Starts{0, 30, 61}));  // 30.5 is rounded to even
  EXPECT_EQ(window_starts(127, 64, 0.5), (Starts{0, 32, 63}));  // 31.5 too
  EXPECT_EQ(window_starts(200, 48, 0.25),
            (Starts{0, 12, 23, 35, 47, 58, 70, 82, 94, 105, 117, 129, 140, 152}));
  EXPECT_EQ(window_starts(30, 10, 1), (Starts{0, 10, 20}));
  EXPECT_EQ(plan_windows({6, 5}, {4, 5}, 0.5), (std::vector<Shape>{{0, 0}, {2, 0}}));
  EXPECT_EQ(plan_windows({6, 7}, {4, 5}, 0.5), (std::vector<Shape>{{0, 0}, {0, 2}, {2, 0}, {2, 2}}));
  EXPECT_ERRORS(ValueError, window_starts(9, 10, 0.5), window_starts(9, 0, 0.5), window_starts(9, 3, 1.5),
                window_starts(9, 3, NAN));
  EXPECT_THROW(plan_windows({9, 9}, {3}, 0.5), ShapeError);
}

TEST(SlidingWindow, WeightsAreThoseOfNnUnet) {
  const Floats w = gaussian_window({6, 5}).to_vector<float>();
  EXPECT_EQ(w[3 * 5 + 2], 10);
  EXPECT_EQ(w[2 * 5 + 2], static_cast<float>(float16(10 * std::exp(-0.5 * 64 / 36))));
  EXPECT_EQ(w[3 * 5 + 4], static_cast<float>(float16(10 * std::exp(-0.5 * 256 / 25))));
  const float smallest = gaussian_window({16, 16, 16}).min().item<float>();
  EXPECT_EQ(smallest, 0x1p-24f);  // of f16: the corner is 4e-10
}

/// A network whose result depends on its whole window, with two results.
std::vector<Tensor> means_and_input(const Tensor& x) {
  const Shape all{2, 3, 4};
  return {cat({x, x.mean(all, true).expand(x.shape())}, 1), 2 * x};
}

DEVICE_SUITE(SlidingWindowTest);

TEST_P(SlidingWindowTest, EveryCellHasTheWeightedMean) {
  const Shape size{7, 5, 9}, window{4, 5, 4};
  const Tensor volume = randn({1, 7, 5, 9}, {f64});
  const Tensor weights = gaussian_window(window).to(f64);
  Tensor sum = zeros(size, {f64}), total = zeros(size, {f64});
  const auto part = [&](const Tensor& x, const Shape& s) {
    return x.slice(0, s[0], s[0] + 4).slice(1, s[1], s[1] + 5).slice(2, s[2], s[2] + 4);
  };
  for (const Shape& start : plan_windows(size, window, 0.5)) {
    part(sum, start).add_(part(volume[0], start).mean() * weights);
    part(total, start).add_(weights);
  }
  for (const int64_t batch_size : {1, 4, 100}) {
    const auto results = sliding_window(volume, means_and_input,
                                        {.window = window, .batch_size = batch_size, .device = device()});
    ASSERT_EQ(results.size(), 2u);
    ASSERT_EQ(results[0].shape(), (Shape{2, 7, 5, 9}));
    EXPECT_EQ(results[0].device(), Device::cpu());
    EXPECT_LT(largest(results[0][1] - sum / total), 1e-12);
    EXPECT_LT(largest(results[0][0] - volume[0]), 1e-12);
    EXPECT_LT(largest(results[1] - 2 * volume), 1e-12);
  }
}

TEST_P(SlidingWindowTest, SmallAxesArePaddedOnBothSides) {
  const Tensor image = randn({2, 3, 6}).to(device());
  const auto net = [](const Tensor& x) {
    EXPECT_EQ(x.shape(), (Shape{1, 2, 6, 6}));
    EXPECT_EQ(largest(x.slice(2, 0, 1)) + largest(x.slice(2, 4, 6)), 0);  // 1 and 2 rows
    return (x + 1).to(bf16);
  };
  const Tensor y = sliding_window(image, net, {.window = {6, 6}, .gaussian = false});
  EXPECT_EQ(y.dtype(), f32);
  EXPECT_EQ(y.device(), device());
  EXPECT_EQ(y.to_vector<float>(), (image + 1).to(bf16).to(f32).to_vector<float>());
}

TEST_P(SlidingWindowTest, MirroringAveragesOverAllFlips) {
  const Tensor image = randn({1, 4, 6}).to(device());
  const Tensor ramp = arange(24).reshape({1, 1, 4, 6}).to(device());
  int calls = 0;
  const auto net = [&](const Tensor& x) { return ++calls, x * ramp; };
  const Tensor y = sliding_window(image, net, {.window = {4, 6}, .mirror = {0, 1}});
  EXPECT_EQ(calls, 4);  // ramp + its mirror image is 23
  EXPECT_LT(largest(y - 11.5 * image), 1e-5);
}

TEST(SlidingWindow, TakesAModuleAndRecordsNothing) {
  Conv3d net({.in_channels = 1, .out_channels = 3, .kernel_size = 3, .padding = 1});
  const Tensor y = sliding_window(randn({1, 6, 6, 6}), net, {.window = {4, 4, 4}});
  EXPECT_EQ(y.shape(), (Shape{3, 6, 6, 6}));
  EXPECT_FALSE(y.requires_grad());
}

TEST(SlidingWindow, RefusesWhatDoesNotFit) {
  const Tensor x = ones({1, 6, 6, 6});
  const auto same = [](const Tensor& t) { return t; };
  EXPECT_THROW(sliding_window(x, same, {.window = {4, 4}}), ShapeError);
  EXPECT_ERRORS(ValueError, sliding_window(x, same, {.window = {4}}),
                sliding_window(x, same, {.window = {4, 4, 0}}),
                sliding_window(x, same, {.window = {4, 4, 4}, .step = 0}),
                sliding_window(x, same, {.window = {4, 4, 4}, .mirror = {3}}),
                sliding_window(x, same, {.window = {4, 4, 4}, .mirror = {0, 0}}),
                sliding_window(Tensor(), same, {.window = {4, 4, 4}}));
  EXPECT_MESSAGE(ValueError, sliding_window(x, same, {.window = {4, 4, 4}, .batch_size = 0}),
                 "sliding_window: batch_size must be positive, got 0");
  const auto classes = [](const Tensor& t) { return t.to(i64); };
  EXPECT_THROW(sliding_window(x, classes, {.window = {4, 4, 4}}), DTypeError);
  const auto half = [](const Tensor& t) { return t.slice(2, 0, 2); };
  EXPECT_MESSAGE(ShapeError, sliding_window(x, half, {.window = {4, 4, 4}}),
                 "sliding_window: the network must return (1,1,4,4,4), got (1,1,2,4,4)");
}

}  // namespace
}  // namespace vox::nn

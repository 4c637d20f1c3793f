#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/norm.h>
#include <voxgrad/nn/sequential.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/norm.h>
#include <voxgrad/ops/reduce.h>

#include "tests/support/devices.h"
#include "tests/support/values.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace vox {
namespace {

using nn::BatchNorm3d;

class BatchNorm3dTest : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, BatchNorm3dTest, testing::devices(), testing::device_name);

/// Mean and sum of squared deviations of each channel of (N, C, D, H, W), by loops.
struct Statistics {
  std::vector<double> mean, squares;
  double count;
};
Statistics statistics(const Tensor& x) {
  const int64_t n = x.size(0), c = x.size(1), volume = x.numel() / (n * c);
  const std::vector<double> v = x.to_vector<double>();
  Statistics s{std::vector<double>(c), std::vector<double>(c), static_cast<double>(n * volume)};
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < x.numel(); ++i) f(i / volume % c, v[static_cast<size_t>(i)]);
  };
  each([&](int64_t k, double value) { s.mean[k] += value / s.count; });
  each([&](int64_t k, double value) { s.squares[k] += (value - s.mean[k]) * (value - s.mean[k]); });
  return s;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12 * (1 + std::abs(want[i]))) << i;
}

TEST_P(BatchNorm3dTest, TrainingNormalisesByTheBatchAndTracksIt) {
  BatchNorm3d layer({.num_features = 3, .eps = 1e-3, .momentum = 0.25, .tensor = on(f64)});
  layer.load_state_dict(
      {{"weight", from_vector<double>({1, 2, -3}, {3})}, {"bias", from_vector<double>({0, 5, 7}, {3})}},
      false);
  std::vector<double> running_mean(3, 0), running_var(3, 1);
  for (unsigned step = 1; step <= 3; ++step) {
    const Tensor x = testing::normal({2, 3, 2, 3, 2}, on(f64), step) * 2.0 + 1.0;
    const Statistics s = statistics(x);
    const std::vector<double> in = x.to_vector<double>(), weight = {1, 2, -3}, bias = {0, 5, 7};
    std::vector<double> want(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const size_t k = i / 12 % 3;
      want[i] = (in[i] - s.mean[k]) / std::sqrt(s.squares[k] / s.count + 1e-3) * weight[k] + bias[k];
    }
    expect_near(layer(x).to_vector<double>(), want);
    for (size_t k = 0; k < 3; ++k) {
      running_mean[k] = 0.75 * running_mean[k] + 0.25 * s.mean[k];
      running_var[k] = 0.75 * running_var[k] + 0.25 * s.squares[k] / (s.count - 1);
    }
    expect_near(layer.running_mean.to_vector<double>(), running_mean);
    expect_near(layer.running_var.to_vector<double>(), running_var);
    EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), step);
  }
}

TEST_P(BatchNorm3dTest, EvaluationUsesTheRunningStatisticsAndLeavesThem) {
  BatchNorm3d layer({.num_features = 2, .eps = 0, .tensor = on(f64)});
  layer.load_state_dict({{"running_mean", from_vector<double>({1, -2}, {2})},
                         {"running_var", from_vector<double>({4, 0.25}, {2})},
                         {"weight", from_vector<double>({10, 1}, {2})},
                         {"bias", from_vector<double>({0, 100}, {2})}},
                        false);
  layer.eval();
  const Tensor x = from_vector<double>({3, 5, 0, -2}, {1, 2, 1, 1, 2}, device());
  // (x - 1) / 2 * 10 and (x + 2) * 2 + 100
  expect_near(layer(x).to_vector<double>(), {10, 20, 104, 100});
  expect_near(layer(from_vector<double>({1, -2}, {1, 2, 1, 1, 1}, device())).to_vector<double>(), {0, 100});
  EXPECT_EQ(layer.running_mean.to_vector<double>(), (std::vector<double>{1, -2}));
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 0);
}

TEST_P(BatchNorm3dTest, WithoutMomentumItAveragesAllBatches) {
  BatchNorm3d layer({.num_features = 1, .momentum = std::nullopt, .tensor = on(f64)});
  std::vector<double> mean = {0}, var = {0};
  for (unsigned step = 1; step <= 4; ++step) {
    const Tensor x = testing::normal({3, 1, 2, 1, 2}, on(f64), step);
    layer(x);
    const Statistics s = statistics(x);
    mean[0] += (s.mean[0] - mean[0]) / step;
    var[0] += (s.squares[0] / (s.count - 1) - var[0]) / step;
    expect_near(layer.running_mean.to_vector<double>(), mean);
    expect_near(layer.running_var.to_vector<double>(), var);
  }
}

TEST_P(BatchNorm3dTest, WithoutRunningStatisticsEvaluationUsesTheBatch) {
  BatchNorm3d layer({.num_features = 2, .track_running_stats = false, .tensor = on(f64)});
  const Tensor x = testing::normal({2, 2, 2, 2, 2}, on(f64));
  const Tensor training = layer(x);
  layer.eval();
  EXPECT_TRUE(testing::same_bits(layer(x), training));
}

// The kernels and the composition of ops give the same result, on one large enough tensor of few channels and
// of many.
TEST_P(BatchNorm3dTest, ManyChannelsAndFewGiveTheSame) {
  for (const int64_t channels : {2, 16}) {
    BatchNorm3d layer({.num_features = channels, .tensor = on(f64)});
    Tensor x = testing::normal({2, channels, 16, 33, 65}, on(f64));
    const Statistics s = statistics(x);
    x.set_requires_grad();
    const Tensor g = testing::normal(x.shape(), on(f64), 2);
    const Tensor y = layer(x);
    const Tensor gx = vox::grad({y}, {x}, {.grad_outputs = {g}})[0];
    const std::vector<double> in = x.to_vector<double>(), gs = g.to_vector<double>(),
                              out = y.to_vector<double>(), got = gx.to_vector<double>();
    const int64_t volume = 16 * 33 * 65;
    std::vector<double> g_mean(channels), g_xhat(channels), scale(channels);
    for (int64_t c = 0; c < channels; ++c) scale[c] = 1 / std::sqrt(s.squares[c] / s.count + 1e-5);
    const auto xhat = [&](size_t i, int64_t c) { return (in[i] - s.mean[c]) * scale[c]; };
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t c = static_cast<int64_t>(i) / volume % channels;
      g_mean[c] += gs[i] / s.count;
      g_xhat[c] += gs[i] * xhat(i, c) / s.count;
    }
    double worst = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t c = static_cast<int64_t>(i) / volume % channels;
      worst = std::max(worst, std::abs(out[i] - xhat(i, c)));
      worst = std::max(worst, std::abs(got[i] - scale[c] * (gs[i] - g_mean[c] - xhat(i, c) * g_xhat[c])));
    }
    EXPECT_LT(worst, 1e-12) << channels;
    if (device().is_cpu()) {
      EXPECT_TRUE(testing::same_on_any_threads([&] { return layer(x.detach()); }));
      EXPECT_TRUE(
          testing::same_on_any_threads([&] { return vox::grad({layer(x)}, {x}, {.grad_outputs = {g}})[0]; }));
    }
  }
}

TEST_P(BatchNorm3dTest, AnyLayoutGivesWhatTheDenseOneGives) {
  const auto guard = no_grad();
  const std::vector<Shape> orders{
      {0, 2, 3, 4, 1}, {4, 3, 2, 1, 0}, {2, 0, 4, 3, 1}, {3, 4, 2, 0, 1}, {0, 3, 1, 2, 4}};
  for (const Shape& shape : {Shape{2, 9, 5, 6, 7}, Shape{4, 8, 1, 3, 40}, Shape{3, 33, 9, 16, 17},
                             Shape{5, 16, 1, 1, 1}, Shape{1, 40, 7, 1, 9}}) {
    for (const DType dtype : {f32, f64}) {
      // Small whole numbers around a large one that grows along each channel: neither may reduce the accuracy
      // of the variance.
      const TensorOptions options{dtype, device()};
      const int64_t volume = shape[2] * shape[3] * shape[4];
      const Tensor ramp = (arange(volume, options) * (8.0 / static_cast<double>(volume)))
                              .reshape({1, 1, shape[2], shape[3], shape[4]});
      const Tensor dense = testing::whole(shape, options) + 1000 + ramp;
      BatchNorm3d layer({.num_features = shape[1], .tensor = options});
      layer.weight.copy_(testing::normal({shape[1]}, options));
      layer.bias.copy_(testing::normal({shape[1]}, options, 2));
      BatchNorm3d other({.num_features = shape[1], .tensor = options});
      other.weight.copy_(layer.weight.detach()), other.bias.copy_(layer.bias.detach());
      const Tensor expected = layer(dense).detach();
      const double tolerance = dtype == f32 ? 3e-5 : 1e-12;
      const auto near = [&](const Tensor& a, const Tensor& b) {
        return max(abs(a - b)).to(f64).item<double>() < tolerance;
      };
      for (const Shape& order : orders) {
        Shape back = order;
        for (int64_t i = 0; i < 5; ++i) back[order[i]] = i;
        const Tensor x = dense.permute(order).contiguous().permute(back);
        EXPECT_TRUE(near(other(x), expected)) << dtype << shape << order;
        other.train(false), layer.train(false);
        EXPECT_TRUE(testing::same_bits(other(x), other(dense))) << dtype << shape << order;
        other.train(true), layer.train(true);
        EXPECT_TRUE(device().is_cuda() || testing::same_on_any_threads([&] { return other(x); }));
      }
    }
  }
}

TEST_P(BatchNorm3dTest, Gradients) {
  for (const bool evaluate : {false, true}) {
    for (const bool affine : {false, true}) {
      BatchNorm3d layer({.num_features = 2, .affine = affine, .tensor = on(f64)});
      layer.train(!evaluate);
      Tensor x = testing::normal({2, 2, 1, 2, 2}, on(f64));
      x.set_requires_grad(true);
      std::vector<Tensor> inputs = layer.parameters();
      inputs.push_back(x);
      const auto f = [&](const std::vector<Tensor>& all) { return layer(all.back()); };
      EXPECT_TRUE(autograd::gradcheck(f, inputs));
    }
  }
}

TEST_P(BatchNorm3dTest, AnEmptyBatchMovesNothing) {
  for (const bool tracks : {true, false}) {
    for (const DType dtype : {f64, bf16}) {
      const TensorOptions options{dtype, device()};
      BatchNorm3d layer({.num_features = 2, .track_running_stats = tracks, .tensor = options});
      Tensor x = ones({0, 2, 3, 1, 1}, options).set_requires_grad();
      Tensor y = layer(x);
      EXPECT_EQ(y.shape(), x.shape());
      EXPECT_EQ(y.dtype(), dtype);
      y.sum().backward();
      EXPECT_EQ(x.grad().shape(), x.shape());
      for (const Tensor& parameter : {layer.weight, layer.bias})
        EXPECT_EQ(parameter.grad().to(f64).to_vector<double>(), (std::vector<double>{0, 0}));
      if (!tracks) continue;
      EXPECT_EQ(layer.running_mean.to(f64).to_vector<double>(), (std::vector<double>{0, 0}));
      EXPECT_EQ(layer.running_var.to(f64).to_vector<double>(), (std::vector<double>{1, 1}));
      EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 1);
    }
  }
}

TEST_P(BatchNorm3dTest, AnyFiniteMomentum) {
  BatchNorm3d layer({.num_features = 1, .momentum = -0.5, .tensor = on(f64)});
  layer(from_vector<double>({3, 5}, {2, 1, 1, 1, 1}, device()));  // mean 4, unbiased variance 2
  EXPECT_EQ(layer.running_mean.to_vector<double>(), (std::vector<double>{-2}));
  EXPECT_EQ(layer.running_var.to_vector<double>(), (std::vector<double>{0.5}));
}

TEST_P(BatchNorm3dTest, SecondGradients) {
  BatchNorm3d layer({.num_features = 1, .tensor = on(f64)});
  Tensor x = testing::normal({2, 1, 1, 2, 1}, on(f64));
  x.set_requires_grad(true);
  EXPECT_TRUE(autograd::gradgradcheck([&](const std::vector<Tensor>& all) { return layer(all[0]); }, {x}));
}

TEST_P(BatchNorm3dTest, BuffersStayOffTheTape) {
  BatchNorm3d layer({.num_features = 1, .tensor = on(f64)});
  Tensor x = testing::normal({2, 1, 1, 2, 1}, on(f64));
  x.set_requires_grad(true);
  layer(x).sum().backward();
  EXPECT_FALSE(layer.running_mean.requires_grad() || layer.running_var.requires_grad());
  EXPECT_TRUE(layer.weight.grad().defined() && layer.bias.grad().defined());
}

// ---- The other norms --------------------------------------------------------------------------------------

class NormLayersTest : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, NormLayersTest, testing::devices(), testing::device_name);

TEST_P(NormLayersTest, InstanceNormTracksWithoutCounting) {
  nn::InstanceNorm1d layer(
      {.num_features = 1, .momentum = 0.5, .track_running_stats = true, .tensor = on(f64)});
  const Tensor x = from_vector<double>({1, 3, 6, 10}, {2, 1, 2}, device());
  layer(x);
  expect_near(layer.running_mean.to_vector<double>(), {0.5 * (2 + 8) / 2});
  expect_near(layer.running_var.to_vector<double>(), {0.5 + 0.5 * (2 + 8) / 2});
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 0);
  layer.eval();
  const double scale = 1 / std::sqrt(3 + 1e-5);
  expect_near(layer(x).to_vector<double>(), {-1.5 * scale, 0.5 * scale, 3.5 * scale, 7.5 * scale});
}

TEST_P(NormLayersTest, ParametersInF32BesideSixteenBits) {
  for (const DType dtype : {bf16, f16}) {
    nn::BatchNorm3d layer({.num_features = 2, .tensor = on(f32)});
    const Tensor x = testing::normal({2, 2, 2, 2, 2}, on(dtype)).set_requires_grad();
    const Tensor y = layer(x);
    EXPECT_EQ(y.dtype(), dtype);
    y.sum().backward();
    EXPECT_EQ(x.grad().dtype(), dtype);
    EXPECT_EQ(layer.weight.grad().dtype(), f32);
    layer.eval();
    EXPECT_EQ(layer(x).dtype(), dtype);
    EXPECT_EQ(layer.running_var.dtype(), f32);
  }
}

TEST_P(NormLayersTest, SequentialJoinsANormAndItsActivation) {
  const auto check_joins = [&](const auto& activation) {
    const std::vector<std::function<std::shared_ptr<nn::Norm>(Activation)>> norms{
        [&](Activation a) {
          return std::make_shared<nn::BatchNorm2d>(
              nn::BatchNorm2d::Options{.num_features = 4, .activation = a, .tensor = on(f64)});
        },
        [&](Activation a) {
          return std::make_shared<nn::InstanceNorm2d>(
              nn::InstanceNorm2d::Options{.num_features = 4, .activation = a, .tensor = on(f64)});
        },
        [&](Activation a) {
          return std::make_shared<nn::GroupNorm>(
              nn::GroupNorm::Options{.num_groups = 2, .num_channels = 4, .activation = a, .tensor = on(f64)});
        },
        [&](Activation a) {
          return std::make_shared<nn::LayerNorm>(
              nn::LayerNorm::Options{.normalized_shape = {5}, .activation = a, .tensor = on(f64)});
        }};
    for (const auto& norm : norms) {
      for (const Activation own : {Activation::none(), Activation::leaky_relu(-2)}) {
        nn::Sequential net;
        net.push_back(norm(own)), net.push_back(activation()), net.push_back(activation());
        const auto alone = norm(own);
        auto after = activation();
        const auto apart = [&](const Tensor& t) { return after(after((*alone)(t))); };
        const Tensor x = testing::normal({2, 4, 3, 5}, on(f64)).set_requires_grad();
        const Tensor g = testing::normal({2, 4, 3, 5}, on(f64), 2);
        EXPECT_TRUE(testing::same_bits(net(x), apart(x)));
        EXPECT_TRUE(testing::same_bits(grad({net(x)}, {x}, {.grad_outputs = {g}})[0],
                                       grad({apart(x)}, {x}, {.grad_outputs = {g}})[0]));
        net.eval(), alone->eval();
        EXPECT_TRUE(testing::same_bits(net(x), apart(x)));
      }
    }
  };
  check_joins([] { return nn::ReLU(); });
  check_joins([] { return nn::LeakyReLU(0.25); });
}

}  // namespace
}  // namespace vox

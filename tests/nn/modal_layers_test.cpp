#include "tests/support/test.h"

// What only norms and Dropout do. layers_test.cpp compares norms with their ops in both modes, and
// tests/ops/norm_test.cpp the ops with their definition.

namespace vox {
namespace {

DEVICE_SUITE(NormLayersTest);

/// Whether running statistics have these bits, are off the tape, and belong to this number of batches.
void expect_running(const nn::TrackingNorm& layer, const Tensor& mean, const Tensor& var, int64_t batches) {
  EXPECT_TRUE(same_bits(layer.running_mean, mean) && same_bits(layer.running_var, var));
  EXPECT_FALSE(layer.running_mean.requires_grad() || layer.running_var.requires_grad());
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), batches);
}

TEST_P(NormLayersTest, TrainingMovesTheRunningStatisticsAsTheOpDoes) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const std::optional<double> momentum :
         {std::optional(0.25), std::optional(-0.5), std::optional<double>()}) {
      SCOPED_TRACE(str(dtype, ", momentum ", momentum.value_or(0)));
      nn::BatchNorm3d batch({.num_features = 3, .momentum = momentum, .tensor = on(dtype)});
      nn::InstanceNorm3d instance({.num_features = 3,
                                   .momentum = momentum.value_or(1),
                                   .track_running_stats = true,
                                   .tensor = on(dtype)});
      Tensor mean = zeros({3}, on(dtype)), var = ones({3}, on(dtype)), own_mean = mean.clone(),
             own_var = var.clone();
      Tensor x;
      for (unsigned step = 1; step <= 3; ++step) {
        x = (normal({2, 3, 2, 3, 2}, on(dtype), step) * 2.0 + 1.0).detach().set_requires_grad();
        batch(x), instance(x);
        const double of_all = 1.0 / step;  // without momentum, the average of all batches
        batch_norm(x, mean, var, {}, {}, {.training = true, .momentum = momentum.value_or(of_all)});
        instance_norm(x, own_mean, own_var, {}, {}, {.momentum = momentum.value_or(1)});
        expect_running(batch, mean, var, step);
        expect_running(instance, own_mean, own_var, 0);
      }
      batch.eval(), instance.eval();
      batch(x), instance(x);
      batch.train();
      expect_running(batch, mean, var, 3);
      expect_running(instance, own_mean, own_var, 0);
      batch(x.slice(0, 0, 0));  // an empty batch counts, and moves nothing
      expect_running(batch, mean, var, 4);
    }
  }
}

TEST_P(NormLayersTest, SixteenBitsBesideF32AndRoundedFromIt) {
  for (const DType dtype : {bf16, f16}) {
    const Tensor x = normal({2, 2, 2, 2, 2}, on(dtype));
    nn::BatchNorm3d layer({.num_features = 2, .tensor = on(f32)}),
        narrow({.num_features = 2, .tensor = on(dtype)});
    EXPECT_TRUE(same_bits(narrow(x), layer(x)));
    EXPECT_TRUE(same_bits(narrow.running_mean, layer.running_mean.to(dtype)));
    EXPECT_TRUE(same_bits(narrow.running_var, layer.running_var.to(dtype)));
    layer.eval();
    EXPECT_EQ(layer(x).dtype(), dtype);
  }
}

using MakeNorm = std::function<std::shared_ptr<nn::Norm>(Activation)>;
template <class L>
MakeNorm maker(typename L::Options options, const TensorOptions& tensor) {
  options.tensor = tensor;
  return [options](Activation following) mutable {
    options.activation = following;
    return std::make_shared<L>(options);
  };
}

TEST_P(NormLayersTest, SequentialJoinsANormAndItsActivation) {
  const auto check_joins = [&](const auto& activation) {
    for (const MakeNorm& norm : {maker<nn::BatchNorm2d>({.num_features = 4}, on(f64)),
                                 maker<nn::InstanceNorm2d>({.num_features = 4}, on(f64)),
                                 maker<nn::GroupNorm>({.num_groups = 2, .num_channels = 4}, on(f64)),
                                 maker<nn::LayerNorm>({.normalized_shape = {5}}, on(f64))}) {
      for (const Activation own : {Activation::none(), Activation::leaky_relu(-2)}) {
        nn::Sequential net;
        net.push_back(norm(own)), net.push_back(activation()), net.push_back(activation());
        const auto alone = norm(own);
        auto after = activation();
        const auto apart = [&](const Tensor& t) { return after(after((*alone)(t))); };
        const Tensor x = normal({2, 4, 3, 5}, on(f64)).set_requires_grad();
        const Tensor g = normal({2, 4, 3, 5}, on(f64), 2);
        EXPECT_TRUE(same_bits(net(x), apart(x)));
        EXPECT_TRUE(same_bits(grad({net(x)}, {x}, {.grad_outputs = {g}})[0],
                              grad({apart(x)}, {x}, {.grad_outputs = {g}})[0]));
        net.eval(), alone->eval();
        EXPECT_TRUE(same_bits(net(x), apart(x)));
      }
    }
  };
  check_joins([] { return nn::ReLU(); });
  check_joins([] { return nn::LeakyReLU(0.25); });
}

using nn::Dropout;

DEVICE_SUITE(DropoutTest);

TEST_P(DropoutTest, ZeroesAShareOfPAndScalesTheRest) {
  manual_seed(5);
  Dropout layer({.p = 0.75});
  const int64_t n = 40000;
  const Floats y = layer(full({n}, 3, on(f32))).to_vector<float>();
  int64_t zero = 0;
  for (float v : y) {
    EXPECT_TRUE(v == 0 || v == 12);
    zero += v == 0;
  }
  EXPECT_NEAR(static_cast<double>(zero) / n, 0.75, 5 * std::sqrt(0.75 * 0.25 / n));
  EXPECT_EQ(Dropout({.p = 1})(ones({3}, on(f32))).to_vector<float>(), (Floats{0, 0, 0}));
}

TEST_P(DropoutTest, EqualSeedsDropEqualElementsOnEveryDevice) {
  Dropout layer;
  const auto draw = [&](uint64_t seed, Device where) {
    manual_seed(seed);
    return layer(ones({3, 100}, {.device = where}));
  };
  EXPECT_TRUE(same_bits(draw(1, device()), draw(1, device())));
  EXPECT_TRUE(same_bits(draw(1, device()), draw(1, Device::cpu())));
  EXPECT_FALSE(same_bits(draw(1, device()), draw(2, device())));
  manual_seed(1);
  const Tensor first = layer(ones({300}, on(f32)));
  EXPECT_FALSE(same_bits(first, layer(ones({300}, on(f32))))) << "each call draws anew";
}

TEST_P(DropoutTest, ChannelsAreDroppedWhole) {
  const auto check = [&](auto layer, const std::vector<Shape>& shapes, const Shape& wrong, int64_t axes) {
    for (const Shape& shape : shapes) {
      manual_seed(2);
      const Tensor y = layer(ones(shape, on(f32)));
      const int64_t channels = y.numel() / (1 << axes);
      const Tensor rows = y.reshape({channels, 1 << axes});
      EXPECT_TRUE(same_bits(rows, rows.slice(1, 0, 1).expand(rows.shape()).contiguous()));
      const double kept = sum(rows.select(1, 0)).item() / 2;  // each 2
      EXPECT_NEAR(kept / static_cast<double>(channels), 0.5,
                  5 * std::sqrt(0.25 / static_cast<double>(channels)));
    }
    EXPECT_THROW(layer(ones(wrong, on(f32))), ShapeError);
  };
  check(nn::Dropout1d(), {{30, 20, 2}, {600, 2}}, {2, 2, 2, 2}, 1);
  check(nn::Dropout2d(), {{30, 20, 2, 2}, {600, 2, 2}}, {2, 2}, 2);
  check(nn::Dropout3d(), {{30, 20, 2, 2, 2}, {600, 2, 2, 2}}, {2, 2, 2}, 3);
  EXPECT_EQ(nn::Dropout3d({.p = 0.25}).describe(), "Dropout3d(0.25)");
  EXPECT_THROW(nn::Dropout2d({.p = 1.5}), ValueError);
}

TEST_P(DropoutTest, EvaluationDrawsNothingAndSixteenBitsAreRounded) {
  const Tensor x = ones({10}, on(f32));
  manual_seed(1);
  Dropout layer({.p = 0.9}), none({.p = 0});
  layer.eval();
  EXPECT_EQ(layer(x).impl(), x.impl());
  EXPECT_EQ(none(x).impl(), x.impl());
  EXPECT_EQ(default_generator().state().offset, 0u);
  layer.train();
  layer(x);
  EXPECT_EQ(default_generator().state().offset, 1u);
  for (const DType half : {bf16, f16}) {
    const Tensor x = normal({100}, on(half));
    manual_seed(3);
    const Tensor dropped = Dropout({.p = 0.3})(x);
    manual_seed(3);
    EXPECT_TRUE(same_bits(dropped, Dropout({.p = 0.3})(x.to(f32)).to(half)));
  }
}

TEST_P(DropoutTest, TheGradientPassesWhereTheValueDid) {
  Dropout layer({.p = 0.5});
  Tensor x = ones({50}, on(f64));
  x.set_requires_grad(true);
  const Tensor y = layer(x);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), y.to_vector<double>());
}

}  // namespace
}  // namespace vox

#include "tests/support/test.h"

namespace vox {
namespace {

using nn::Dropout;

DEVICE_SUITE(DropoutTest);

TEST_P(DropoutTest, ZeroesAShareOfPAndScalesTheRest) {
  manual_seed(5);
  Dropout layer({.p = 0.75});
  const int64_t n = 40000;
  const std::vector<float> y = layer(full({n}, 3, {.device = device()})).to_vector<float>();
  int64_t zero = 0;
  for (float v : y) {
    EXPECT_TRUE(v == 0 || v == 12);
    zero += v == 0;
  }
  EXPECT_NEAR(static_cast<double>(zero) / n, 0.75, 5 * std::sqrt(0.75 * 0.25 / n));
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
  const Tensor first = layer(ones({300}, {.device = device()}));
  EXPECT_FALSE(same_bits(first, layer(ones({300}, {.device = device()})))) << "each call draws anew";
}

TEST_P(DropoutTest, ChannelsAreDroppedWhole) {
  const auto check = [&](auto layer, const std::vector<Shape>& shapes, const Shape& wrong, int64_t axes) {
    for (const Shape& shape : shapes) {
      manual_seed(2);
      const Tensor y = layer(ones(shape, {.device = device()}));
      const int64_t channels = y.numel() / (1 << axes);
      const Tensor rows = y.reshape({channels, 1 << axes});
      EXPECT_TRUE(same_bits(rows, rows.slice(1, 0, 1).expand(rows.shape()).contiguous()));
      const double kept = sum(rows.select(1, 0)).item() / 2;  // each 2
      EXPECT_NEAR(kept / static_cast<double>(channels), 0.5,
                  5 * std::sqrt(0.25 / static_cast<double>(channels)));
    }
    EXPECT_THROW(layer(ones(wrong, {.device = device()})), ShapeError);
  };
  check(nn::Dropout1d(), {{30, 20, 2}, {600, 2}}, {2, 2, 2, 2}, 1);
  check(nn::Dropout2d(), {{30, 20, 2, 2}, {600, 2, 2}}, {2, 2}, 2);
  check(nn::Dropout3d(), {{30, 20, 2, 2, 2}, {600, 2, 2, 2}}, {2, 2, 2}, 3);
  EXPECT_EQ(nn::Dropout3d({.p = 0.25}).describe(), "Dropout3d(0.25)");
  EXPECT_THROW(nn::Dropout2d({.p = 1.5}), ValueError);
}

TEST_P(DropoutTest, SixteenBitsAreThoseOfF32Rounded) {
  for (const DType half : {bf16, f16}) {
    const Tensor x = normal({100}, on(half));
    manual_seed(3);
    const Tensor dropped = Dropout({.p = 0.3})(x);
    manual_seed(3);
    EXPECT_TRUE(same_bits(dropped, Dropout({.p = 0.3})(x.to(f32)).to(half)));
  }
}

TEST_P(DropoutTest, EvaluationAndP0AreTheIdentityAndDrawNothing) {
  const Tensor x = ones({10}, {.device = device()});
  manual_seed(1);
  Dropout layer({.p = 0.9}), none({.p = 0});
  layer.eval();
  EXPECT_EQ(layer(x).impl(), x.impl());
  EXPECT_EQ(none(x).impl(), x.impl());
  EXPECT_EQ(default_generator().state().offset, 0u);
  layer.train();
  layer(x);
  EXPECT_EQ(default_generator().state().offset, 1u);
}

TEST_P(DropoutTest, P1DropsAll) {
  Dropout layer({.p = 1});
  EXPECT_EQ(layer(ones({3}, {.device = device()})).to_vector<float>(), (Floats{0, 0, 0}));
}

TEST_P(DropoutTest, TheGradientPassesWhereTheValueDid) {
  Dropout layer({.p = 0.5});
  Tensor x = ones({50}, {.dtype = f64, .device = device()});
  x.set_requires_grad(true);
  const Tensor y = layer(x);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), y.to_vector<double>());
}

}  // namespace
}  // namespace vox

#include "tests/support/test.h"

namespace vox {
namespace {

DEVICE_SUITE(SoftmaxTest);

TEST_P(SoftmaxTest, ByHand) {
  const Tensor x = make({0, std::log(3.0), std::log(2.0), std::log(2.0)}, {2, 2});
  expect_near(softmax(x, 1), {0.25, 0.75, 0.5, 0.5}, 1e-15);
  expect_near(softmax(x, 0), {1.0 / 3, 0.6, 2.0 / 3, 0.4}, 1e-15);
  expect_near(log_softmax(x, -1), {std::log(0.25), std::log(0.75), std::log(0.5), std::log(0.5)}, 1e-15);
}

// Rows that fit a warp, a block, or several blocks; dimensions with dense and with strided elements.
TEST_P(SoftmaxTest, IsItsDefinition) {
  const std::pair<Shape, int64_t> cases[] = {
      {{700, 10}, 1},     {{20, 700}, 1},   {{3, 40000}, 1}, {{2, 5, 64}, 1},  {{2, 5, 63}, 1},
      {{2, 33, 300}, 1},  {{2, 70, 33}, 1}, {{40000, 3}, 0}, {{7, 1}, 1},      {{2, 40, 600}, 1},
      {{3, 70000, 2}, 0}, {{70, 512}, 1},   {{3, 16384}, 1}, {{2, 32, 64}, 1}, {{70, 65536}, 0}};
  const std::pair<DType, double> dtypes[] = {{f32, 1e-5}, {f64, 1e-12}, {bf16, 8e-3}, {f16, 1e-3}};
  for (const auto& [shape, dim] : cases) {
    int64_t inner = 1;
    for (int64_t d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
    for (const auto& [dtype, tolerance] : dtypes) {
      SCOPED_TRACE(str(shape, " dim ", dim, " ", dtype));
      const Tensor x = normal(shape, {dtype, device()}) * 3;
      const auto from = x.to(f64).to_vector<double>();
      const auto y = softmax(x, dim).to(f64).to_vector<double>(),
                 logs = log_softmax(x, dim).to(f64).to_vector<double>();
      for (size_t i = 0; i < from.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i), first = at - at / inner % shape[dim] * inner;
        if (at != first) continue;
        double sum = 0;
        const auto element = [&](int64_t k) { return static_cast<size_t>(first + k * inner); };
        for (int64_t k = 0; k < shape[dim]; ++k) sum += std::exp(from[element(k)]);
        for (int64_t k = 0; k < shape[dim]; ++k) {
          const double wanted = std::exp(from[element(k)]) / sum;
          ASSERT_NEAR(y[element(k)], wanted, tolerance * (1e-3 + wanted)) << element(k);
          ASSERT_NEAR(logs[element(k)], std::log(wanted), tolerance * (1 - std::log(wanted))) << element(k);
        }
      }
    }
  }
}

// The gradient's kernel computes what the recorded gradient is composed of.
TEST_P(SoftmaxTest, BothGradientsAgree) {
  const std::pair<Shape, int64_t> cases[] = {
      {{50, 33}, 1}, {{2, 30000}, 1}, {{2, 5, 64}, 1}, {{2, 70, 33}, 1}, {{2, 33, 301}, 1}};
  for (const auto& [shape, dim] : cases) {
    for (const bool logarithm : {false, true}) {
      SCOPED_TRACE(str(shape, " dim ", dim, logarithm ? " log" : ""));
      Tensor x = normal(shape, {f64, device()}).set_requires_grad();
      const Tensor g = normal(shape, {f64, device()}, 2);
      const Tensor y = logarithm ? log_softmax(x, dim) : softmax(x, dim);
      const Tensor kernel = grad({y}, {x}, {.grad_outputs = {g}, .retain_graph = true})[0];
      const Tensor composed = grad({y}, {x}, {.grad_outputs = {g}, .create_graph = true})[0].detach();
      EXPECT_LT(max(abs(kernel - composed)).item<double>(), 1e-11);
    }
  }
}

TEST_P(SoftmaxTest, LargeNumbersDoNotOverflow) {
  const Tensor x = make({1e6, 1e6, -1e6, 3e5}, {4}).to(f32);
  EXPECT_EQ(softmax(x, 0).to_vector<float>(), (Floats{0.5, 0.5, 0, 0}));
  EXPECT_EQ(log_softmax(x, 0).to_vector<float>()[2], -2e6f - static_cast<float>(std::log(2.0)));
}

TEST_P(SoftmaxTest, InfinitiesAndNaN) {
  const auto y = softmax(make({-inf, 0, 0}, {3}), 0).to_vector<double>();
  EXPECT_EQ(y, (Doubles{0, 0.5, 0.5}));
  EXPECT_EQ(log_softmax(make({-inf, 0}, {2}), 0).to_vector<double>(), (Doubles{-inf, 0}));
  for (double bad : {inf, std::numeric_limits<double>::quiet_NaN()}) {
    const auto z = softmax(make({bad, 0, 1, 2}, {2, 2}), 1).to_vector<double>();
    EXPECT_TRUE(std::isnan(z[0]));
    EXPECT_FALSE(std::isnan(z[2]) || std::isnan(z[3]));
  }
}

TEST_P(SoftmaxTest, EmptyAndErrors) {
  EXPECT_EQ(softmax(empty({3, 0}, {f32, device()}), 1).shape(), (Shape{3, 0}));
  EXPECT_EQ(log_softmax(empty({3, 0}, {f32, device()}), 0).shape(), (Shape{3, 0}));
  const Tensor x = whole({2, 3}, {f32, device()});
  EXPECT_ERRORS(ShapeError, softmax(x, 2), log_softmax(x, -3));
  EXPECT_THROW(softmax(x.to(i64), 0), DTypeError);
  EXPECT_THROW(log_softmax(Tensor(), 0), ValueError);
}

}  // namespace
}  // namespace vox

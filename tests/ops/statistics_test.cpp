#include "tests/support/test.h"

// var_mean, var, std, norm, logsumexp and softmax.

namespace vox {
namespace {

class StatisticsTest : public DeviceTest {
 protected:
  Tensor leaf(const Shape& shape) const { return normal(shape, on(f64)).set_requires_grad(); }
};
INSTANTIATE_TEST_SUITE_P(, StatisticsTest, devices(), device_name);

double value(const Tensor& t) { return t.detach().to(f64).item<double>(); }

TEST_P(StatisticsTest, VarianceOfWholeNumbers) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Tensor x = make({1, 3, 5, 7, 2, 2, 2, 6}, {2, 4}, dtype);
    const VarMean population = var_mean(x, {1}, 0);
    EXPECT_EQ(values(population.var), (Doubles{5, 3}));
    EXPECT_EQ(values(population.mean), (Doubles{4, 3}));
    EXPECT_EQ(values(var(x, {-1}, 2)), (Doubles{10, 6}));
    EXPECT_EQ(values(var(x, {0})), (Doubles{0.5, 0.5, 4.5, 0.5}));
    EXPECT_EQ(var(x, {0}, 1, true).shape(), (Shape{1, 4}));
    EXPECT_EQ(var(x, {1}).dtype(), dtype);
    EXPECT_EQ(values(std(make({1, 5, 3, 3}, {4}, dtype), {}, 2)), (Doubles{2}));
  }
  EXPECT_EQ(value(std(make({-60000, 60000}, {2}, f16), {}, 0)), 60000 - 60000 % 32);
}

TEST_P(StatisticsTest, VarianceOfFewElements) {
  const Tensor one = make({3}, {1});
  EXPECT_TRUE(std::isnan(value(var(one))));
  EXPECT_EQ(value(var(one, {}, 0)), 0);
  EXPECT_EQ(value(var(make({1, 3}, {2}), {}, 5)), inf);  // 2 / 0
  const VarMean nothing = var_mean(ones({2, 0}, on(f64)), {1});
  for (const Tensor& t : {nothing.var, nothing.mean}) {
    EXPECT_EQ(t.shape(), (Shape{2}));
    for (const double v : values(t)) EXPECT_TRUE(std::isnan(v));
  }
  EXPECT_EQ(var(ones({0, 2}, on(f64)), {1}).numel(), 0);
}

TEST_P(StatisticsTest, AnyShapeAndLayout) {
  for (const Shape& shape : {Shape{3, 5000}, Shape{40, 41, 43}, Shape{2, 3, 70001}}) {
    const Tensor x = normal(shape, on(f64));
    for (const Shape& dims : {Shape{}, Shape{0}, Shape{1}, Shape{0, -1}}) {
      const VarMean got = var_mean(x, dims, 0);
      const Tensor m = mean(x, dims, true), d = x - m;
      EXPECT_LT(value(max(abs(got.mean - m.reshape(got.mean.shape())))), 1e-12) << shape << dims;
      EXPECT_LT(value(max(abs(got.var - mean(d * d, dims)))), 1e-12) << shape << dims;
      EXPECT_TRUE(device().is_cuda() || same_on_any_threads([&] { return var(x, dims); })) << shape << dims;
    }
  }
}

void expect_variance_of_rows(const Tensor& x, double correction, double tolerance) {
  const VarMean r = var_mean(x, {1}, correction);
  const Doubles elements = values(x), variances = values(r.var), means = values(r.mean);
  const size_t length = elements.size() / means.size();
  for (size_t row = 0; row < means.size(); ++row) {
    double mean = 0, m2 = 0;
    for (size_t i = 0; i < length; ++i) mean += elements[row * length + i] / static_cast<double>(length);
    for (size_t i = 0; i < length; ++i) m2 += std::pow(elements[row * length + i] - mean, 2);
    const double wanted = m2 / std::max(0.0, static_cast<double>(length) - correction);
    ASSERT_NEAR(means[row], mean, tolerance * (1 + std::abs(mean))) << row;
    if (std::isnan(wanted))
      ASSERT_TRUE(std::isnan(variances[row])) << row;
    else
      ASSERT_NEAR(variances[row], wanted, tolerance * (1 + wanted)) << row;
  }
}

TEST_P(StatisticsTest, VarianceIsItsDefinition) {
  const std::pair<DType, double> dtypes[] = {{f32, 1e-5}, {f64, 1e-12}, {bf16, 4e-3}, {f16, 5e-4}};
  for (const auto& [dtype, tolerance] : dtypes) {
    for (const int64_t length : {1, 3, 33, 1000, 1024, 1025, 70000, 1100000}) {
      for (const double correction : {0.0, 1.0}) {
        SCOPED_TRACE(str(dtype, ", ", length, ", ", correction));
        expect_variance_of_rows((normal({3, length}, on(f64)) + 2).to(dtype), correction, tolerance);
      }
    }
  }
}

// Means round by up to 5e-4 here, which moves the variance by less than that. The mean of the squares minus
// the square of the mean would be wrong by several hundred percent.
TEST_P(StatisticsTest, VarianceBesideALargeMean) {
  for (const int64_t length : {30, 1000, 300000}) {
    Tensor x = (normal({2, length}, on(f64)) + 1e4).to(f32);
    expect_variance_of_rows(x, 1, 2e-4);
    x.slice(1, 0, 1).fill_(0);
    expect_variance_of_rows(x, 1, 2e-4);
  }
}

TEST_P(StatisticsTest, StridesAndAddressesChangeNoBitOfAVariance) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const Shape& shape : {Shape{3, 5, 9}, Shape{9, 40, 30}, Shape{2, 50, 61}}) {
      for (const LaidOut& x : layouts(normal(shape, on(dtype)))) {
        for (const Shape& dims : {Shape{2}, Shape{1, 2}, Shape{0, 1, 2}}) {
          const VarMean a = var_mean(x.tensor, dims), b = var_mean(x.dense, dims);
          EXPECT_TRUE(same_bits(a.var, b.var)) << x.layout << " " << dtype << shape << dims;
          EXPECT_TRUE(same_bits(a.mean, b.mean)) << x.layout << " " << dtype << shape << dims;
        }
      }
    }
  }
}

TEST_P(StatisticsTest, NaNReachesTheVarianceOfItsRow) {
  Tensor x = normal({2, 5000}, on(f32));
  x.slice(0, 1, 2).slice(1, 4000, 4001).fill_(nan);
  const Doubles variances = values(var(x, {1}, 0));
  EXPECT_FALSE(std::isnan(variances[0]));
  EXPECT_TRUE(std::isnan(variances[1]));
}

TEST_P(StatisticsTest, GradientsAtTheEdges) {
  const auto gradient = [](const auto& f, Tensor x) {
    x.set_requires_grad();
    return values(grad({f(x).sum()}, {x})[0]);
  };
  for (const double p : {1.0, 2.0, inf})
    EXPECT_EQ(gradient([=](const Tensor& x) { return norm(x, p); }, zeros({2}, on(f64))), (Doubles{0, 0}))
        << p;
  EXPECT_EQ(gradient([](const Tensor& x) { return std(x); }, ones({2}, on(f64))), (Doubles{0, 0}));
  // The divisor, 2 elements - 3, is at least 0.
  EXPECT_EQ(gradient([](const Tensor& x) { return var_mean(x, {}, 3).var; }, make({1, 2}, {2})),
            (Doubles{-inf, inf}));
  const auto both = [](const VarMean& y) { return y.var + y.mean * 4; };
  EXPECT_EQ(gradient([&](const Tensor& x) { return both(var_mean(x, {}, 0)); }, make({1, 2, 3, 6}, {4})),
            (Doubles{0, 0.5, 1, 2.5}));  // (x - 3) / 2 + 1
  EXPECT_EQ(gradient([](const Tensor& x) { return norm(x, inf); }, make({-2, 1, 2}, {3})),
            (Doubles{-0.5, 0, 0.5}));
  EXPECT_EQ(gradient([](const Tensor& x) { return logsumexp(x, {1}); }, make({-inf, -inf, -inf, 5}, {2, 2})),
            (Doubles{0, 0, 0, 1}));
}

// Results that 16 bits round, or cannot hold, do not reach the gradients, recorded or not.
TEST_P(StatisticsTest, GradientsOf16BitsUseExactResults) {
  const auto gradient = [](const auto& f, const Tensor& leaf, bool create_graph) {
    Tensor x = leaf.clone().set_requires_grad();
    return grad({f(x)}, {x}, {.create_graph = create_graph})[0].detach().to(f64)[0].template item<double>();
  };
  const Tensor large = full({10000}, 1000, on(f16)), close = make({100.25, 100}, {2}).to(bf16);
  for (const bool recorded : {false, true}) {
    EXPECT_NEAR(gradient([](const Tensor& x) { return norm(x).to(f32); }, large, recorded), 0.01, 1e-4)
        << recorded;
    EXPECT_NEAR(gradient([](const Tensor& x) { return logsumexp(x); }, close, recorded), 0.5, 0.002)
        << recorded;
  }
}

TEST_P(StatisticsTest, VarianceOfHugeNumbers) {
  for (const DType dtype : {f32, bf16}) {
    const auto of_row = [&](const Tensor& x) { return var_mean(x.to(dtype)); };
    const VarMean same = of_row(full({2}, 0x1p126, on(f64)));
    EXPECT_EQ(same.var.to(f64).item<double>(), 0) << dtype;
    EXPECT_EQ(same.mean.to(f64).item<double>(), 0x1p126) << dtype;
    // The sum of squares does not fit f32, their mean does.
    const Tensor signs = arange(1 << 20, on(i64));
    const Tensor x = where(lt(signs, 1 << 19), full({}, 0x1p57, on(f64)), full({}, -0x1p57, on(f64)));
    EXPECT_EQ(var_mean(x.to(dtype), {}, 0).var.to(f64).item<double>(), 0x1p114) << dtype;
  }
}

TEST_P(StatisticsTest, ResultsMayBeOverwritten) {
  Tensor x = leaf({3, 4});
  VarMean y = var_mean(x);
  {
    const auto guard = no_grad();
    y.mean.mul_(2);
  }
  EXPECT_NO_THROW(y.var.backward());
}

TEST_P(StatisticsTest, Norms) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Tensor x = make({3, -4, 0, 0, -6, 8}, {3, 2}, dtype);
    EXPECT_EQ(values(norm(x, 2, {1})), (Doubles{5, 0, 10}));
    EXPECT_EQ(values(norm(x, 1, {1})), (Doubles{7, 0, 14}));
    EXPECT_EQ(values(norm(x, inf, {0}, true)), (Doubles{6, 8}));
    EXPECT_EQ(norm(x, 2, {0}, true).shape(), (Shape{1, 2}));
    EXPECT_EQ(norm(x).dtype(), dtype);
  }
  EXPECT_EQ(value(norm(make({300, 400}, {2}, f16))), 500);  // the sum of squares exceeds f16
  EXPECT_EQ(value(norm(ones({0}, on(f64)))), 0);
  EXPECT_THROW(norm(ones({0}, on(f64)), inf), ShapeError);
  EXPECT_THROW(norm(ones({2}, on(f64)), 3), ValueError);
}

TEST_P(StatisticsTest, LogSumExp) {
  for (const DType dtype : {f32, f64}) {
    EXPECT_NEAR(value(logsumexp(make({1000, 1000}, {2}, dtype))), 1000 + std::log(2.0), 1e-4);
    EXPECT_NEAR(value(logsumexp(make({-1000, -1000}, {2}, dtype))), -1000 + std::log(2.0), 1e-4);
    EXPECT_EQ(values(logsumexp(make({-inf, -inf, inf, 1, -inf, 3}, {3, 2}, dtype), {1})),
              (Doubles{-inf, inf, 3}));
    EXPECT_TRUE(std::isnan(value(logsumexp(make({nan, 1}, {2}, dtype)))));
    EXPECT_EQ(values(logsumexp(ones({2, 0}, on(dtype)), {1})), (Doubles{-inf, -inf}));
  }
  EXPECT_EQ(logsumexp(ones({2, 3, 4}, on(bf16)), {0, 2}, true).shape(), (Shape{1, 3, 1}));
}

TEST(StatisticsRefusalTest, ImpossibleOperands) {
  EXPECT_ERRORS(ValueError, var(Tensor()), var(ones({2}), {}, inf));
  EXPECT_ERRORS(ShapeError, var(ones({2}), {1}), var(ones({2}), {0, 0}));
}

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
      const Tensor x = normal(shape, on(dtype)) * 3;
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

TEST_P(SoftmaxTest, LargeNumbersDoNotOverflow) {
  const Tensor x = make({1e6, 1e6, -1e6, 3e5}, {4}).to(f32);
  EXPECT_EQ(softmax(x, 0).to_vector<float>(), (Floats{0.5, 0.5, 0, 0}));
  EXPECT_EQ(log_softmax(x, 0).to_vector<float>()[2], -2e6f - static_cast<float>(std::log(2.0)));
}

TEST_P(SoftmaxTest, InfinitiesAndNaN) {
  const auto y = softmax(make({-inf, 0, 0}, {3}), 0).to_vector<double>();
  EXPECT_EQ(y, (Doubles{0, 0.5, 0.5}));
  EXPECT_EQ(log_softmax(make({-inf, 0}, {2}), 0).to_vector<double>(), (Doubles{-inf, 0}));
  for (double bad : {inf, nan}) {
    const auto z = softmax(make({bad, 0, 1, 2}, {2, 2}), 1).to_vector<double>();
    EXPECT_TRUE(std::isnan(z[0]));
    EXPECT_FALSE(std::isnan(z[2]) || std::isnan(z[3]));
  }
}

TEST_P(SoftmaxTest, EmptyAndErrors) {
  EXPECT_EQ(softmax(empty({3, 0}, on(f32)), 1).shape(), (Shape{3, 0}));
  EXPECT_EQ(log_softmax(empty({3, 0}, on(f32)), 0).shape(), (Shape{3, 0}));
  const Tensor x = whole({2, 3}, on(f32));
  EXPECT_ERRORS(ShapeError, softmax(x, 2), log_softmax(x, -3));
  EXPECT_THROW(log_softmax(Tensor(), 0), ValueError);
}

}  // namespace
}  // namespace vox

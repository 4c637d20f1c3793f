#include "tests/support/test.h"

// var_mean, var, std, norm and logsumexp.

namespace vox {
namespace {

class StatisticsTest : public DeviceTest {
 protected:
  TensorOptions here(DType dtype = f64) const { return {.dtype = dtype, .device = device()}; }
  Tensor leaf(const Shape& shape) const { return normal(shape, here()).set_requires_grad(); }
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
  const VarMean nothing = var_mean(ones({2, 0}, here()), {1});
  for (const Tensor& t : {nothing.var, nothing.mean}) {
    EXPECT_EQ(t.shape(), (Shape{2}));
    for (const double v : values(t)) EXPECT_TRUE(std::isnan(v));
  }
  EXPECT_EQ(var(ones({0, 2}, here()), {1}).numel(), 0);
}

TEST_P(StatisticsTest, AnyShapeAndLayout) {
  for (const Shape& shape : {Shape{3, 5000}, Shape{40, 41, 43}, Shape{2, 3, 70001}}) {
    const Tensor x = normal(shape, here());
    for (const Shape& dims : {Shape{}, Shape{0}, Shape{1}, Shape{0, -1}}) {
      const VarMean got = var_mean(x, dims, 0);
      const Tensor m = mean(x, dims, true), d = x - m;
      EXPECT_LT(value(max(abs(got.mean - m.reshape(got.mean.shape())))), 1e-12) << shape << dims;
      EXPECT_LT(value(max(abs(got.var - mean(d * d, dims)))), 1e-12) << shape << dims;
      EXPECT_TRUE(device().is_cuda() || same_on_any_threads([&] { return var(x, dims); })) << shape << dims;
    }
  }
}

TEST_P(StatisticsTest, GradientsAtTheEdges) {
  const auto gradient = [](const auto& f, Tensor x) {
    x.set_requires_grad();
    return values(grad({f(x).sum()}, {x})[0]);
  };
  for (const double p : {1.0, 2.0, inf})
    EXPECT_EQ(gradient([=](const Tensor& x) { return norm(x, p); }, zeros({2}, here())), (Doubles{0, 0}))
        << p;
  EXPECT_EQ(gradient([](const Tensor& x) { return std(x); }, ones({2}, here())), (Doubles{0, 0}));
  // The divisor, 2 elements - 3, is at least 0.
  EXPECT_EQ(gradient([](const Tensor& x) { return var_mean(x, {}, 3).var; }, make({1, 2}, {2})),
            (Doubles{-inf, inf}));
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
  const Tensor large = full({10000}, 1000, {f16, device()}),
               close = from_vector<double>({100.25, 100}, {2}, device()).to(bf16);
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
    const VarMean same = of_row(full({2}, 0x1p126, here()));
    EXPECT_EQ(same.var.to(f64).item<double>(), 0) << dtype;
    EXPECT_EQ(same.mean.to(f64).item<double>(), 0x1p126) << dtype;
    // The sum of squares does not fit f32, their mean does.
    const Tensor signs = arange(1 << 20, {i64, device()});
    const Tensor x = where(lt(signs, 1 << 19), full({}, 0x1p57, here()), full({}, -0x1p57, here()));
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
  EXPECT_EQ(value(norm(ones({0}, here()))), 0);
  EXPECT_THROW(norm(ones({0}, here()), inf), ShapeError);
  EXPECT_THROW(norm(ones({2}, here()), 3), ValueError);
  EXPECT_THROW(norm(ones({2}, {.dtype = i64, .device = device()})), DTypeError);
}

TEST_P(StatisticsTest, LogSumExp) {
  for (const DType dtype : {f32, f64}) {
    EXPECT_NEAR(value(logsumexp(make({1000, 1000}, {2}, dtype))), 1000 + std::log(2.0), 1e-4);
    EXPECT_NEAR(value(logsumexp(make({-1000, -1000}, {2}, dtype))), -1000 + std::log(2.0), 1e-4);
    EXPECT_EQ(values(logsumexp(make({-inf, -inf, inf, 1, -inf, 3}, {3, 2}, dtype), {1})),
              (Doubles{-inf, inf, 3}));
    EXPECT_TRUE(std::isnan(value(logsumexp(make({std::nan(""), 1}, {2}, dtype)))));
    EXPECT_EQ(values(logsumexp(ones({2, 0}, here(dtype)), {1})), (Doubles{-inf, -inf}));
  }
  EXPECT_EQ(logsumexp(ones({2, 3, 4}, here(bf16)), {0, 2}, true).shape(), (Shape{1, 3, 1}));
}

TEST(StatisticsRefusalTest, ImpossibleOperands) {
  EXPECT_ERRORS(ValueError, var(Tensor()), var(ones({2}), {}, inf));
  EXPECT_ERRORS(DTypeError, var(ones({2}, {.dtype = i64})), std(ones({2}, {.dtype = i64})),
                logsumexp(ones({2}, {.dtype = i64})));
  EXPECT_ERRORS(ShapeError, var(ones({2}), {1}), var(ones({2}), {0, 0}));
}

}  // namespace
}  // namespace vox

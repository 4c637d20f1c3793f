#include "tests/support/test.h"

namespace vox {
namespace {

using Index = std::function<int64_t(int64_t)>;

/// One norm of one shape: its call, and the row and the weight of element i of x.
struct Case {
  std::string name;
  Shape x, weight;
  std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& b, double eps, Activation)> call;
  Index row, channel;
};

Case batch(const Shape& shape) {
  int64_t cells = 1;
  for (int64_t d = 2; d < shape.rank(); ++d) cells *= shape[d];
  const Index channel = [=, c = shape[1]](int64_t i) { return i / cells % c; };
  return {str("batch_norm ", shape),
          shape,
          {shape[1]},
          [](const Tensor& x, const Tensor& w, const Tensor& b, double eps, Activation a) {
            return batch_norm(x, {}, {}, w, b, {.training = true, .eps = eps, .activation = a});
          },
          channel,
          channel};
}
Case group(const Shape& shape, int64_t groups) {
  int64_t cells = 1;
  for (int64_t d = 2; d < shape.rank(); ++d) cells *= shape[d];
  return {str("group_norm ", shape, ", ", groups),
          shape,
          {shape[1]},
          [=](const Tensor& x, const Tensor& w, const Tensor& b, double eps, Activation a) {
            return group_norm(x, groups, w, b, eps, a);
          },
          [=, length = shape[1] / groups * cells](int64_t i) { return i / length; },
          [=, c = shape[1]](int64_t i) { return i / cells % c; }};
}
Case instance(const Shape& shape) {
  Case c = group(shape, shape[1]);
  c.name = str("instance_norm ", shape);
  c.call = [](const Tensor& x, const Tensor& w, const Tensor& b, double eps, Activation a) {
    return instance_norm(x, {}, {}, w, b, {.eps = eps, .activation = a});
  };
  return c;
}
Case layer(const Shape& shape, int64_t inner_rank) {
  const Shape inner(shape.end() - inner_rank, shape.end());
  int64_t length = 1;
  for (const int64_t size : inner) length *= size;
  return {str("layer_norm ", shape, ", ", inner),
          shape,
          inner,
          [=](const Tensor& x, const Tensor& w, const Tensor& b, double eps, Activation a) {
            return layer_norm(x, inner, w, b, eps, a);
          },
          [=](int64_t i) { return i / length; },
          [=](int64_t i) { return i % length; }};
}

std::vector<Case> small_cases() {
  return {batch({2, 3, 2, 1, 3}), batch({3, 2, 4}),       batch({5, 3}),
          instance({2, 3, 2, 3}), group({2, 6, 2, 2}, 3), group({4, 6}, 2),
          group({2, 4, 3}, 1),    layer({2, 3, 4}, 2),    layer({5, 4}, 1)};
}
/// Rows of more than one block, with all ways to share the work, and odd sizes.
std::vector<Case> large_cases() {
  return {batch({3, 2, 37, 61}),        batch({2, 17, 9, 19, 15}), batch({700, 5, 3}),
          instance({2, 3, 15, 19, 21}), group({2, 6, 33, 65}, 2),  group({3, 40, 7}, 4),
          group({1, 6, 71, 67}, 3),     layer({3, 5003}, 1),       layer({301, 129}, 1),
          layer({2, 5, 31, 67}, 3)};
}
const std::vector<Activation> activations{Activation::none(), Activation::relu(),
                                          Activation::leaky_relu(0.25)};

/// y and all gradients for the gradient `g` of y, by the definition.
struct Expected {
  Doubles y, x, weight, bias;
};
Expected by_definition(const Case& c, const Tensor& x_tensor, const Tensor& w_tensor, const Tensor& b_tensor,
                       const Tensor& g_tensor, double eps, Activation a) {
  const Doubles x = values(x_tensor), w = values(w_tensor), b = values(b_tensor), g = values(g_tensor);
  const size_t n = x.size();
  std::vector<size_t> row(n), channel(n);
  size_t rows = 0;
  for (size_t i = 0; i < n; ++i) {
    row[i] = static_cast<size_t>(c.row(static_cast<int64_t>(i)));
    channel[i] = static_cast<size_t>(c.channel(static_cast<int64_t>(i)));
    rows = std::max(rows, row[i] + 1);
  }
  const double size = static_cast<double>(n / rows);
  Doubles mean(rows), rstd(rows), g_mean(rows), slope(rows), xhat(n), h(n);
  for (size_t i = 0; i < n; ++i) mean[row[i]] += x[i] / size;
  for (size_t i = 0; i < n; ++i) rstd[row[i]] += (x[i] - mean[row[i]]) * (x[i] - mean[row[i]]) / size;
  for (double& v : rstd) v = 1 / std::sqrt(v + eps);
  Expected e{Doubles(n), Doubles(n), Doubles(w.size()), Doubles(w.size())};
  for (size_t i = 0; i < n; ++i) {
    xhat[i] = (x[i] - mean[row[i]]) * rstd[row[i]];
    const double z = xhat[i] * w[channel[i]] + b[channel[i]];
    e.y[i] = z > 0 ? z : z * a.negative_slope;
    h[i] = z > 0 ? g[i] : g[i] * a.negative_slope;
    e.weight[channel[i]] += h[i] * xhat[i];
    e.bias[channel[i]] += h[i];
    g_mean[row[i]] += h[i] * w[channel[i]] / size;
    slope[row[i]] += h[i] * w[channel[i]] * xhat[i] / size;
  }
  for (size_t i = 0; i < n; ++i)
    e.x[i] = rstd[row[i]] * (h[i] * w[channel[i]] - g_mean[row[i]] - xhat[i] * slope[row[i]]);
  return e;
}

class NormTest : public DeviceTest {
 protected:
  Tensor normal(const Shape& shape, DType dtype = f64, unsigned seed = 1) const {
    return vox::testing::normal(shape, on(dtype), seed);
  }
  Tensor leaf(const Shape& shape, DType dtype = f64, unsigned seed = 1) const {
    return normal(shape, dtype, seed).set_requires_grad();
  }
};
INSTANTIATE_TEST_SUITE_P(, NormTest, devices(), device_name);

// 16 bits are computed in f32 and rounded once.
TEST_P(NormTest, ValuesAndGradientsAreThoseOfTheDefinition) {
  std::vector<Case> cases = small_cases();
  for (Case& c : large_cases()) cases.push_back(std::move(c));
  const auto tolerance = [](DType d) {
    return d == f64 ? 1e-12 : d == f32 ? 1e-5 : d == bf16 ? 0x1p-8 : 0x1p-11;
  };
  const std::pair<DType, DType> dtypes[] = {{f64, f64},  {f32, f32}, {bf16, bf16},
                                            {bf16, f32}, {f16, f16}, {f16, f32}};
  for (const Case& c : cases) {
    for (const auto& [dtype, of_weights] : dtypes) {
      for (const Activation a : activations) {
        // One activation will do for 16 bits.
        if (is_16_bit(dtype) && a != Activation::leaky_relu(0.25)) continue;
        const Tensor x = leaf(c.x, dtype), w = leaf(c.weight, of_weights, 2),
                     b = leaf(c.weight, of_weights, 3);
        const Tensor g = normal(c.x, dtype, 4);
        const Tensor y = c.call(x, w, b, 0.5, a);
        const auto gradients = grad({y}, {x, w, b}, {.grad_outputs = {g}});
        const Expected e = by_definition(c, x, w, b, g, 0.5, a);
        const std::string what = str(c.name, " ", dtype, " with weights ", of_weights, " ", a.negative_slope);
        const auto expect = [&](const Tensor& got, const Doubles& want, DType of, const char* name) {
          EXPECT_EQ(got.dtype(), of) << what << name;
          expect_near(got, want, tolerance(of), what + name);
        };
        expect(y, e.y, dtype, ", y");
        expect(gradients[0], e.x, dtype, ", grad_x");
        expect(gradients[1], e.weight, of_weights, ", grad_weight");
        expect(gradients[2], e.bias, of_weights, ", grad_bias");
      }
    }
  }
}

// Rows of 1 and 3, or 1 and 5: mean, variance and everything after are exact.
TEST_P(NormTest, WholeNumbers) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Tensor x = from_vector<double>({1, 3, 3, 1, 5, 1, 1, 5}, {1, 2, 4}).to(dtype).to(device());
    const Tensor w = from_vector<double>({2, -4}, {2}).to(dtype).to(device());
    const Tensor b = from_vector<double>({1, 3}, {2}).to(dtype).to(device());
    const Doubles channels{-1, 3, 3, -1, -1, 7, 7, -1}, rectified{0, 3, 3, 0, 0, 7, 7, 0};
    const auto relu = Activation::relu();
    EXPECT_EQ(values(instance_norm(x, {}, {}, w, b, {.eps = 0})), channels);
    EXPECT_EQ(values(batch_norm(x, {}, {}, w, b, {.training = true, .eps = 0})), channels);
    EXPECT_EQ(values(batch_norm(x, {}, {}, w, b, {.training = true, .eps = 0, .activation = relu})),
              rectified);
    EXPECT_EQ(values(group_norm(x, 2, w, b, 0, relu)), rectified);
    EXPECT_EQ(values(layer_norm(x, {4}, {}, {}, 0)), (Doubles{-1, 1, 1, -1, 1, -1, -1, 1}));
    const Tensor along = from_vector<double>({1, 2, 3, 4}, {4}).to(dtype).to(device());
    EXPECT_EQ(values(layer_norm(x, {4}, along, along, 0)), (Doubles{0, 4, 6, 0, 2, 0, 0, 8}));
    EXPECT_EQ(values(layer_norm(x, {4}, {}, along, 0)), (Doubles{0, 3, 4, 3, 2, 1, 2, 5}));
    // A row of equal values, whose mean in f32 may be rounded, is normalised to the bias.
    const Tensor equal = full({1, 2, 1000}, 0.1, on(dtype));
    EXPECT_EQ(values(instance_norm(equal, {}, {}, {}, b)), values(b.reshape({1, 2, 1}).expand({1, 2, 1000})));
  }
}

// The values of torch.nn.functional.batch_norm and instance_norm (1.13) for x = 0, 1, 4, 9, ...
TEST_P(NormTest, RunningStatistics) {
  const Tensor n = arange(12, on(f64)), x = (n * n).reshape({2, 2, 3});
  const auto with = [&](const Doubles& values) { return make(values, {2}); };
  Tensor mean = with({1, 2}), var = with({3, 4});
  batch_norm(x, mean, var, {}, {}, {.training = true, .momentum = 0.25});
  // Channels 0, 1, 4, 36, 49, 64 and 9, 16, 25, 81, 100, 121.
  expect_near(mean, {0.75 + 0.25 * 154 / 6, 1.5 + 0.25 * 352 / 6}, 1e-14, "mean");
  expect_near(var, {2.25 + 0.25 * (7810 - 154.0 * 154 / 6) / 5, 3 + 0.25 * (32164 - 352.0 * 352 / 6) / 5},
              1e-14, "variance");

  mean = with({1, 2}), var = with({3, 4});
  instance_norm(x, mean, var, {}, {}, {.momentum = 0.5});
  expect_near(mean, {0.5 + 0.25 * (5.0 / 3 + 149.0 / 3), 1 + 0.25 * (50.0 / 3 + 302.0 / 3)}, 1e-14, "mean");
  const auto unbiased = [](double a, double b, double c) {
    const double m = (a + b + c) / 3;
    return ((a - m) * (a - m) + (b - m) * (b - m) + (c - m) * (c - m)) / 2;
  };
  expect_near(var,
              {1.5 + 0.25 * (unbiased(0, 1, 4) + unbiased(36, 49, 64)),
               2 + 0.25 * (unbiased(9, 16, 25) + unbiased(81, 100, 121))},
              1e-13, "variance");

  // Every second element of some memory, and f32 beside 16 bits.
  Tensor memory = zeros({2, 4}, on(f32));
  Tensor strided_mean = memory.select(0, 0).slice(0, 0, 4, 2),
         strided_var = memory.select(0, 1).slice(0, 0, 4, 2);
  batch_norm(x.to(f16), strided_mean, strided_var, {}, {}, {.training = true, .momentum = 1});
  expect_near(memory,
              {154.0 / 6, 0, 352.0 / 6, 0, (7810 - 154.0 * 154 / 6) / 5, 0, (32164 - 352.0 * 352 / 6) / 5, 0},
              1e-6, "strided");
}

TEST_P(NormTest, RunningStatisticsAreRefusedBeforeAnythingIsWritten) {
  const Tensor x = arange(4, on(f32)).reshape({2, 2});
  Tensor mean = zeros({2}, on(f32)), var = ones({2}, on(f32));
  const Tensor one_place = zeros({1}, on(f32)).expand({2});
  EXPECT_ERRORS(ValueError, batch_norm(x, mean, one_place, {}, {}, {.training = true}),
                instance_norm(x.reshape({1, 2, 2}), mean, one_place));
  for (const double momentum : {nan, HUGE_VAL})
    EXPECT_THROW(batch_norm(x, mean, var, {}, {}, {.training = true, .momentum = momentum}), ValueError);
  EXPECT_EQ(mean.to_vector<float>(), (Floats{0, 0}));
}

// They are written after x was read. Then x is no longer what the gradient needs.
TEST_P(NormTest, RunningStatisticsMayShareMemoryWithTheInput) {
  const Tensor x = leaf({4, 2});
  Tensor var = ones({2}, on(f64));
  const Tensor expected = batch_norm(x.detach().clone(), {}, {}, {}, {}, {.training = true});
  const Tensor y = batch_norm(x, x.detach().select(0, 0), var, {}, {}, {.training = true});
  EXPECT_TRUE(same_bits(y.detach(), expected));
  EXPECT_THROW((y * y * y).sum().backward(), GradError);
}

TEST_P(NormTest, EvaluationUsesTheRunningStatisticsAsConstants) {
  const Tensor x = leaf({3, 2, 5}), w = leaf({2}, f64, 2), b = leaf({2}, f64, 3);
  Tensor mean = make({1, -2}, {2}), var = make({4, 0.25}, {2});
  for (const Activation a : activations) {
    const auto f = [&](const std::vector<Tensor>& t) {
      return batch_norm(t[0], mean, var, t[1], t[2], {.eps = 0, .activation = a});
    };
    const auto of_channel = [](const Tensor& t) { return t.detach().reshape({1, 2, 1}); };
    const Tensor z = (x.detach() - of_channel(mean)) / sqrt(of_channel(var)) * of_channel(w) + of_channel(b);
    expect_near(f({x, w, b}), leaky_relu(z, a.negative_slope).to_vector<double>(), 1e-14, "y");
    expect_gradients(f, {x, w, b});
    const Tensor same =
        instance_norm(x, mean, var, w, b, {.use_input_stats = false, .eps = 0, .activation = a});
    EXPECT_TRUE(same_bits(same, f({x, w, b})));
  }
  // An infinite x does not reach its gradient.
  Tensor far = full({1, 2, 1}, inf, on(f64)).set_requires_grad();
  batch_norm(far, mean, var).sum().backward();
  expect_near(far.grad(), {1 / std::sqrt(4 + 1e-5), 1 / std::sqrt(0.25 + 1e-5)}, 1e-14, "gradient");

  const Tensor y = batch_norm(x, mean, var);
  mean.fill_(0);
  EXPECT_THROW(y.sum().backward(), GradError);
}

TEST_P(NormTest, FirstAndSecondGradients) {
  for (const Case& c : small_cases()) {
    for (const Activation a : activations) {
      const auto f = [&](const std::vector<Tensor>& t) { return c.call(t[0], t[1], t[2], 0.1, a); };
      const std::vector<Tensor> inputs{leaf(c.x), leaf(c.weight, f64, 2), leaf(c.weight, f64, 3)};
      expect_gradients(f, inputs, c.name);
    }
    const auto plain = [&](const std::vector<Tensor>& t) { return c.call(t[0], {}, {}, 0.1, {}); };
    expect_gradients(plain, {leaf(c.x)}, c.name);
    const auto biased = [&](const std::vector<Tensor>& t) { return c.call(t[0], {}, t[1], 0.1, {}); };
    EXPECT_TRUE(autograd::gradcheck(biased, {leaf(c.x), leaf(c.weight)})) << c.name;
  }
}

TEST_P(NormTest, AnActivationGivesTheBitsOfTheOpAfterTheNorm) {
  for (const Case& c : large_cases()) {
    for (const DType dtype : {f32, f64, bf16, f16}) {
      for (const Activation a : {Activation::relu(), Activation::leaky_relu(0.25)}) {
        if (a != Activation::relu() && is_16_bit(dtype)) continue;  // composed, it is rounded twice
        const Tensor x = leaf(c.x, dtype), w = leaf(c.weight, dtype, 2), b = leaf(c.weight, dtype, 3);
        const Tensor g = normal(c.x, dtype, 4), norm = c.call(x, w, b, 1e-5, {});
        const Tensor composed = a == Activation::relu() ? relu(norm) : leaky_relu(norm, a.negative_slope);
        const Tensor fused = c.call(x, w, b, 1e-5, a);
        EXPECT_TRUE(same_bits(fused, composed)) << c.name << dtype;
        const auto want = grad({composed}, {x, w, b}, {.grad_outputs = {g}});
        const auto got = grad({fused}, {x, w, b}, {.grad_outputs = {g}});
        for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << c.name << dtype << i;
      }
    }
  }
}

TEST_P(NormTest, AnActivationOfZerosPassesNoGradient) {
  for (const Case& c : large_cases()) {
    const Tensor x = leaf(c.x, f32), w = zeros_like(leaf(c.weight, f32)).set_requires_grad(),
                 b = zeros_like(w.detach()).set_requires_grad();
    for (const bool recorded : {false, true}) {
      const Tensor y = c.call(x, w, b, 1e-5, Activation::relu());
      for (const Tensor& g : grad({sum(y)}, {x, w, b}, {.create_graph = recorded}))
        EXPECT_EQ(max(abs(g.detach())).item<float>(), 0) << c.name << recorded;
    }
  }
}

TEST_P(NormTest, ThreadsChangeNoBit) {
  if (device().is_cuda()) GTEST_SKIP() << "threads of the CPU";
  for (const Case& c : large_cases()) {
    const Tensor x = leaf(c.x, f32), w = leaf(c.weight, f32, 2), b = leaf(c.weight, f32, 3);
    const Tensor g = normal(c.x, f32, 4);
    const auto y = [&] { return c.call(x, w, b, 1e-5, Activation::relu()); };
    EXPECT_TRUE(same_on_any_threads(y)) << c.name;
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(same_on_any_threads([&] {
        return grad({y()}, {x, w, b}, {.grad_outputs = {g}})[i];
      })) << c.name
          << i;
  }
}

TEST_P(NormTest, ALargeMeanCostsNoAccuracy) {
  const Tensor x = normal({2, 3, 17, 19, 23}, f32) + 1e4;
  const auto exact = var_mean(x.to(f64), {0, 2, 3, 4}, 0);
  const auto got = var_mean(x, {0, 2, 3, 4}, 0);
  expect_near(got.var, exact.var.to_vector<double>(), 1e-6, "variance");
  expect_near(got.mean, exact.mean.to_vector<double>(), 1e-7, "mean");
  // The mean is rounded to f32, by at most 2^-11 here.
  const Tensor y = batch_norm(x, {}, {}, {}, {}, {.training = true});
  expect_near(y, batch_norm(x.to(f64), {}, {}, {}, {}, {.training = true}).to_vector<double>(), 0x1p-10, "y");
}

TEST_P(NormTest, ValuesThatAreNotFiniteStayInTheirRows) {
  for (const double bad : {nan, inf}) {
    for (const Activation a : {Activation::none(), Activation::relu(), Activation::leaky_relu()}) {
      const Tensor dense = normal({4, 3, 50}, f32);
      Tensor x = dense.clone();
      x.select(0, 1).select(0, 2).slice(0, 7, 8).fill_(bad);
      const Tensor y = instance_norm(x, {}, {}, {}, {}, {.activation = a});
      const Tensor want = instance_norm(dense, {}, {}, {}, {}, {.activation = a});
      for (int64_t n = 0; n < 4; ++n) {
        for (int64_t c = 0; c < 3; ++c) {
          const Tensor row = y.select(0, n).select(0, c);
          const bool is_bad = n == 1 && c == 2;
          EXPECT_EQ(ne(row, row).to(i64).sum().item<int64_t>(), is_bad ? 50 : 0);
          EXPECT_TRUE(is_bad || same_bits(row, want.select(0, n).select(0, c)));
        }
      }
    }
  }
}

TEST_P(NormTest, WithoutElements) {
  for (const DType dtype : {f32, bf16}) {
    for (const Case& c : {batch({0, 3, 2}), batch({2, 3, 0}), instance({0, 3, 2}), group({0, 4, 2}, 2),
                          layer({0, 3}, 1), layer({2, 0}, 1)}) {
      Tensor x = ones(c.x, on(dtype)).set_requires_grad();
      Tensor w = ones(c.weight, on(f32)).set_requires_grad(), b = ones(c.weight, on(f32)).set_requires_grad();
      const Tensor y = c.call(x, w, b, 1e-5, Activation::relu());
      EXPECT_EQ(y.shape(), c.x);
      EXPECT_EQ(y.dtype(), dtype);
      for (const bool create_graph : {false, true}) {
        const auto gradients =
            grad({y.sum()}, {x, w, b}, {.retain_graph = true, .create_graph = create_graph});
        EXPECT_EQ(gradients[0].shape(), c.x);
        EXPECT_EQ(gradients[1].sum().item(), 0);
        EXPECT_EQ(gradients[2].sum().item(), 0);
        EXPECT_EQ(gradients[1].shape(), c.weight);
      }
    }
  }
  Tensor mean = ones({3}, on(f32)), var = ones({3}, on(f32));
  batch_norm(ones({0, 3, 2}, on(f32)), mean, var, {}, {}, {.training = true});
  EXPECT_EQ(mean.to_vector<float>(), (Floats{1, 1, 1}));
}

TEST_P(NormTest, BackwardKeepsTheInputAlone) {
  const Tensor x = leaf({2, 3, 4}, f32), w = leaf({3}, f32);
  Tensor y = batch_norm(x, {}, {}, w, {}, {.training = true, .activation = Activation::relu()});
  {
    const auto guard = no_grad();
    y.fill_(7);  // would be an error if it were kept
  }
  y.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(NormRefusalTest, WhatPyTorchRefuses) {
  const Tensor x = ones({2, 6, 3}), c = ones({6});
  const BatchNormOptions train{.training = true};
  EXPECT_THROW(batch_norm(Tensor(), {}, {}, {}, {}, train), ValueError);
  EXPECT_THROW(batch_norm(x, {}, {}), ValueError);  // evaluation without statistics
  EXPECT_THROW(batch_norm(x, c, {}), ValueError);
  EXPECT_ERRORS(ShapeError, batch_norm(c, {}, {}, {}, {}, train),
                batch_norm(ones({1, 6, 1}), {}, {}, {}, {}, train));
  EXPECT_EQ(batch_norm(ones({1, 6, 1}), c, c).numel(), 6);
  EXPECT_ERRORS(ShapeError, batch_norm(x, ones({3}), ones({3})), batch_norm(x, {}, {}, ones({3}), {}, train));
  EXPECT_ERRORS(DTypeError, batch_norm(x, {}, {}, c.to(f64), {}, train),
                batch_norm(x.to(bf16), {}, {}, c.to(f16), {}, train),
                batch_norm(x.to(bf16), {}, {}, c, c.to(bf16), train),
                batch_norm(x.to(bf16), c, c, c.to(bf16)), batch_norm(x.to(i64), {}, {}, {}, {}, train));
  Tensor recorded = ones({6}).set_requires_grad();
  EXPECT_THROW(batch_norm(x, recorded, c, {}, {}, train), GradError);

  EXPECT_ERRORS(ShapeError, instance_norm(ones({2, 6, 1})), instance_norm(ones({2, 6})));
  EXPECT_THROW(instance_norm(x, {}, {}, {}, {}, {.use_input_stats = false}), ValueError);

  EXPECT_MESSAGE_BEGINS(ShapeError, group_norm(x, 4), "group_norm: the number of channels must be divisible");
  EXPECT_THROW(group_norm(x, 0), ValueError);
  EXPECT_ERRORS(ShapeError, group_norm(c, 1), group_norm(ones({1, 6}), 6), group_norm(x, 3, ones({3})));

  EXPECT_ERRORS(ShapeError, layer_norm(x, {}), layer_norm(x, {6}), layer_norm(x, {1, 2, 6, 3}),
                layer_norm(x, {6, 3}, ones({18})));
  EXPECT_EQ(layer_norm(ones({2, 1}), {1}).to_vector<float>(), (Floats{0, 0}));
}

}  // namespace
}  // namespace vox

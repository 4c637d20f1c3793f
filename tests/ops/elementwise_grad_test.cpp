#include "tests/support/test.h"

// Gradients of the elementwise ops at points where difference quotients fail: kinks, ties, poles. Expected
// values are computed by hand.

namespace vox {
namespace {

class ElementwiseGradTest : public DeviceTest {
 protected:
  Tensor leaf(const std::vector<double>& values, const Shape& shape) {
    return from_vector<double>(values, shape, device()).set_requires_grad(true);
  }
  Tensor leaf(const std::vector<double>& values) {
    return leaf(values, {static_cast<int64_t>(values.size())});
  }

  /// dy/dx of y = op(x), elementwise.
  std::vector<double> slope(const std::function<Tensor(const Tensor&)>& op,
                            const std::vector<double>& values) {
    Tensor x = leaf(values);
    Tensor y = op(x);
    y.backward(full_like(y.detach(), 1));
    return x.grad().to_vector<double>();
  }
};
INSTANTIATE_TEST_SUITE_P(, ElementwiseGradTest, devices(), device_name);

TEST_P(ElementwiseGradTest, Kinks) {
  EXPECT_EQ(slope(abs, {-2, 0, 3}), (Doubles{-1, 0, 1}));
  EXPECT_EQ(slope(sign, {-2, 0, 3}), (Doubles{0, 0, 0}));
  EXPECT_EQ(slope(relu, {-2, 0, 3}), (Doubles{0, 0, 1}));
  EXPECT_EQ(slope([](const Tensor& x) { return leaky_relu(x, 0.25); }, {-2, 0, 3}), (Doubles{0.25, 0.25, 1}));
  EXPECT_EQ(slope([](const Tensor& x) { return clamp(x, -1, 2); }, {-2, -1, 0, 2, 3}),
            (Doubles{0, 1, 1, 1, 0}));
  EXPECT_EQ(slope([](const Tensor& x) { return hardtanh(x, -1, 2); }, {-2, -1, 0, 2, 3}),
            (Doubles{0, 0, 1, 0, 0}));
  EXPECT_EQ(slope(relu6, {-1, 0, 3, 6, 7}), (Doubles{0, 0, 1, 0, 0}));
  EXPECT_EQ(slope(hardsigmoid, {-4, -3, 0, 3, 4}), (Doubles{0, 0, 1. / 6, 0, 0}));
  EXPECT_EQ(slope(hardswish, {-4, -3, 0, 1.5, 3, 4}), (Doubles{0, 0, 0.5, 1, 1, 1}));
  EXPECT_EQ(slope([](const Tensor& x) { return elu(x, 0.25); }, {-inf, 0, 3, inf}), (Doubles{0, 0.25, 1, 1}));
  EXPECT_EQ(slope([](const Tensor& x) { return softplus(x); }, {-inf, 0, 30, inf}), (Doubles{0, 0.5, 1, 1}));
}

TEST_P(ElementwiseGradTest, Poles) {
  EXPECT_EQ(slope(sqrt, {0, 4}), (Doubles{inf, 0.25}));
  EXPECT_EQ(slope(log, {0, 4}), (Doubles{inf, 0.25}));
  EXPECT_EQ(slope(rsqrt, {4}), (Doubles{-1. / 16}));
  EXPECT_EQ(slope([](const Tensor& x) { return 1 / x; }, {2, 0}), (Doubles{-0.25, -inf}));
}

TEST_P(ElementwiseGradTest, ASmallDivisorIsNotSquared) {
  for (const bool number : {false, true}) {
    Tensor b = from_vector<float>({1e-25f}, {1}, device()).set_requires_grad();
    const Tensor a = from_vector<float>({1e-30f}, {1}, device());
    (number ? 1e-30 / b : a / b).backward();
    EXPECT_NEAR(b.grad().item<float>(), -1e20, 1e14) << number;
  }
}

// As in PyTorch, a NaN passes the gradient on to the operand it came from.
TEST_P(ElementwiseGradTest, AtNaN) {
  EXPECT_EQ(slope(relu, {nan, -1, 0, 1}), (Doubles{1, 0, 0, 1}));
  EXPECT_EQ(slope([](const Tensor& x) { return leaky_relu(x, 0.25); }, {nan}), (Doubles{0.25}));
  EXPECT_EQ(slope([](const Tensor& x) { return clamp(x, -1, 2); }, {nan}), (Doubles{0}));
  EXPECT_EQ(slope([](const Tensor& x) { return hardtanh(x); }, {nan}), (Doubles{1}));
  EXPECT_EQ(slope(hardsigmoid, {nan}), (Doubles{0}));
  using Op = Tensor (*)(const Tensor&, const Tensor&);
  for (const Op op : {Op(maximum), Op(minimum)}) {
    Tensor a = leaf({nan, 1, nan}), b = leaf({1, nan, nan});
    op(a, b).backward(from_vector<double>({10, 20, 30}, {3}, device()));
    EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{10, 20, 30}));
    EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{10, 20, 30}));
  }
}

TEST_P(ElementwiseGradTest, PowOfZeroIsConstant) {
  constexpr double tiny = std::numeric_limits<double>::denorm_min(),
                   small = 0x1p-149;  // denormal in f64, f32
  const std::vector<double> bases{0, -0.0, nan, inf, -inf, tiny, -tiny, small, -small, 3};
  const std::vector<double> zero(bases.size());
  for (const DType dtype : {f64, f32}) {
    Tensor a = leaf(bases), b = leaf(zero);
    Tensor y = pow(a.to(dtype), b.to(dtype));
    EXPECT_EQ(y.detach().to(f64).to_vector<double>(), Doubles(bases.size(), 1));
    y.backward(full_like(y.detach(), 5));
    EXPECT_EQ(a.grad().to_vector<double>(), zero) << dtype;
  }
  EXPECT_EQ(slope([](const Tensor& x) { return pow(x, 0); }, bases), zero);
  // The mixed derivative of a^b at b = 0 is 1 / a.
  Tensor a = leaf({4}), b = leaf({0});
  const Tensor by_a = grad({pow(a, b)}, {a}, {.create_graph = true})[0];
  EXPECT_EQ(grad({by_a}, {b})[0].item<double>(), 0.25);
}

TEST_P(ElementwiseGradTest, PowOfZeroByItsExponent) {
  // y log(a), but 0 where a = 0 and the exponent is not negative.
  const Tensor a = from_vector<double>({0, -0.0, 0, -0.0, 0, -0.0, 0, -0.0}, {8}, device());
  Tensor b = leaf({2, 3, 0, 0, -1, -1, -2, -2});
  pow(a, b).backward(full({8}, 1, a.options()));
  EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{0, 0, 0, 0, -inf, inf, -inf, -inf}));
}

TEST_P(ElementwiseGradTest, MaskedGradientsStayFinite) {
  // An infinite gradient of an element that was not chosen must come back as 0, not as 0 * inf.
  const Tensor gradient = from_vector<double>({inf, 2}, {2}, device());
  Tensor a = leaf({1, 1}), b = leaf({1, 1}), x = leaf({-1, 1}), y = leaf({-1, 1});
  where(from_vector<bool>({false, true}, {2}, device()), a, b).backward(gradient);
  EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{0, 2}));
  EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{inf, 0}));
  relu(x).backward(gradient);
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{0, 2}));
  clamp(y, 0, 2).backward(gradient);
  EXPECT_EQ(y.grad().to_vector<double>(), (Doubles{0, 2}));
  Tensor z = leaf({-0.5, 1});  // its slope there is positive
  gelu_tanh(z).backward(gradient);
  EXPECT_EQ(z.grad().to_vector<double>()[0], inf);
  Tensor c = leaf({0, 1}), d = leaf({1, 0});
  maximum(c, d).backward(gradient);
  EXPECT_EQ(c.grad().to_vector<double>(), (Doubles{0, 2}));
  EXPECT_EQ(d.grad().to_vector<double>(), (Doubles{inf, 0}));
}

TEST_P(ElementwiseGradTest, TiesShare) {
  Tensor a = leaf({1, 5, 3}), b = leaf({2, 5, 1});
  maximum(a, b).backward(from_vector<double>({10, 20, 30}, {3}, device()));
  EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{0, 10, 30}));
  EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{10, 10, 0}));
  a.zero_grad(), b.zero_grad();
  minimum(a, b).backward(from_vector<double>({10, 20, 30}, {3}, device()));
  EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{10, 10, 0}));
  EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{0, 10, 30}));
}

TEST_P(ElementwiseGradTest, PowAtSpecialPoints) {
  //                      0^0  0^2  0^1  (-2)^3  (-2)^0  3^2  2^0
  const std::vector<double> base = {0, 0, 0, -2, -2, 3, 2}, exponent = {0, 2, 1, 3, 0, 2, 0};
  Tensor a = leaf(base), b = from_vector<double>(exponent, {7}, device());
  Tensor y = pow(a, b);
  y.backward(full_like(y.detach(), 1));
  const auto da = a.grad().to_vector<double>();
  const std::vector<double> expected = {0, 0, 1, 12, 0, 6, 0};
  for (size_t i = 0; i < da.size(); ++i)
    EXPECT_DOUBLE_EQ(da[i], expected[i]) << base[i] << "^" << exponent[i];

  Tensor c = leaf({0, 2, 0.5}), d = from_vector<double>({0, 0, 4}, {3}, device());
  Tensor z = pow(d, c);  // 0^0, 0^2, 4^0.5
  z.backward(full_like(z.detach(), 1));
  const auto dc = c.grad().to_vector<double>();
  EXPECT_EQ(dc[0], 0);
  EXPECT_EQ(dc[1], 0);
  EXPECT_NEAR(dc[2], 2 * std::log(4.), 1e-14);

  EXPECT_EQ(slope([](const Tensor& x) { return pow(x, 0); }, {0, 2}), (Doubles{0, 0}));
  EXPECT_DOUBLE_EQ(slope([](const Tensor& x) { return pow(x, 2); }, {0, -3})[1], -6);
  EXPECT_EQ(slope([](const Tensor& x) { return pow(x, 1); }, {0, -3}), (Doubles{1, 1}));
  const Tensor zero = leaf({0});
  const Tensor first = grad({pow(zero, 2)}, {zero}, {.create_graph = true})[0];
  EXPECT_EQ(grad({first}, {zero})[0].item<double>(), 2);
}

// In 16 bits the result is the exact gradient, rounded once.
TEST_P(ElementwiseGradTest, GradientsIn16BitsAreRoundedOnce) {
  const Tensor wide = leaf({-2.5, -0.75, 0.375, 0.875, 1.625, -1.25}, {6});
  const Tensor g = from_vector<double>({1, 2, -1, 0.5, 3, 1.5}, {6}, device());
  for (auto* op : {&relu, &gelu, &silu, &mish, &hardswish, &erf, &sin, &cos,
                   &log1p}) {  // not those that keep a rounded y
    const Tensor expected = grad({op(wide)}, {wide}, {.grad_outputs = {g}})[0];
    for (const DType half : {bf16, f16}) {
      const Tensor x = wide.detach().to(half).set_requires_grad(true);
      const Tensor got = grad({op(x)}, {x}, {.grad_outputs = {g.to(half)}})[0];
      EXPECT_EQ(got.to(f64).to_vector<double>(), expected.to(half).to(f64).to_vector<double>()) << half;
    }
  }
}

// b a^(b-1) at b = 0 is 0, but its derivative with respect to b is 1 / a.
TEST_P(ElementwiseGradTest, PowWithExponentZero) {
  const auto f = [](const std::vector<Tensor>& inputs) { return pow(inputs[0], inputs[1]); };
  const std::vector<Tensor> inputs = {leaf({2, 0.5}, {2}), leaf({0, 0}, {2})};
  expect_gradients(f, inputs);
}

}  // namespace
}  // namespace vox

#include "tests/support/catalogue.h"
#include "tests/support/test.h"

namespace vox {
namespace {

/// The samples that have a formula.
std::vector<Sample> with_formula() {
  std::vector<Sample> list;
  for (const Sample& op : catalogue(Size::large)) {
    if (op.formula) list.push_back(op);
  }
  return list;
}

/// Numbers of both signs around 0, of all magnitudes that matter to a function, and IEEE's special ones.
template <class T>
std::vector<T> interesting_numbers() {
  using limits = std::numeric_limits<T>;
  std::vector<T> x;
  for (const T number :
       {T(0), limits::infinity(), limits::quiet_NaN(), limits::min(), limits::denorm_min(), T(1), T(80)})
    x.push_back(number), x.push_back(-number);
  for (int i = -1000; i <= 1000; ++i) x.push_back(static_cast<T>(i) * T(0.0041));
  return x;
}

template <class T>
std::vector<T> host(const Tensor& t) {
  return t.to_vector<T>();
}

class ElementwiseTest : public DeviceTest {
 protected:
  template <class T>
  Tensor tensor(const std::vector<T>& values, const Shape& shape) {
    return from_vector<T>(values, shape, device());
  }
  template <class T>
  Tensor tensor(const std::vector<T>& values) {
    return tensor(values, {static_cast<int64_t>(values.size())});
  }
};
INSTANTIATE_TEST_SUITE_P(, ElementwiseTest, devices(), device_name);

TEST_P(ElementwiseTest, ValuesByFormula) {
  const auto check = [&](const Sample& op, const auto& x) {
    using T = typename std::decay_t<decltype(x)>::value_type;
    const std::vector<T> y = host<T>(op({tensor(x)}));
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = op.formula(static_cast<double>(x[i]));
      EXPECT_LE(ulps(y[i], expected), op.ulps)
          << op.name() << " of " << x[i] << " is " << y[i] << ", not " << expected;
    }
  };
  for (const Sample& op : with_formula()) {
    check(op, interesting_numbers<float>());
    check(op, interesting_numbers<double>());
  }
}

TEST_P(ElementwiseTest, FunctionsAtTheEdgeOfTheirRange) {
  const auto exps =
      host<float>(exp(tensor<float>({-87.5f, -88.8f, -95, -103, -104, -1000, 88.7f, 88.8f, 1000})));
  const double xs[] = {-87.5f, -88.8f, -95, -103, -104, -1000, 88.7f, 88.8f, 1000};
  for (size_t i = 0; i < exps.size(); ++i)
    EXPECT_LE(ulps(exps[i], static_cast<float>(std::exp(xs[i]))), 2) << xs[i];
  EXPECT_EQ(host<double>(exp(tensor<double>({-1000, 1000}))), (Doubles{0, inf}));
  EXPECT_LE(ulps(host<double>(exp(tensor<double>({-740})))[0], std::exp(-740.)), 1);
  EXPECT_LE(ulps(host<float>(log(tensor<float>({1e-40f})))[0], std::log(static_cast<double>(1e-40f))), 1);
  EXPECT_EQ(host<float>(sigmoid(tensor<float>({-1000, 1000}))), (Floats{0, 1}));
  EXPECT_EQ(host<float>(tanh(tensor<float>({-1000, 1000}))), (Floats{-1, 1}));
  EXPECT_EQ(host<float>(gelu(tensor<float>({-1000, 1000}))), (Floats{0, 1000}));
  EXPECT_EQ(host<float>(silu(tensor<float>({-1000, 1000}))), (Floats{0, 1000}));
  EXPECT_EQ(host<float>(mish(tensor<float>({-1000, 1e30f}))), (Floats{0, 1e30f}));
  EXPECT_EQ(host<float>(elu(tensor<float>({-1000, 1e30f}))), (Floats{-1, 1e30f}));
  EXPECT_EQ(host<float>(softplus(tensor<float>({-1000, 1e30f}))), (Floats{0, 1e30f}));
  EXPECT_EQ(host<float>(softplus(tensor<float>({500}), 1, 1000)), (Floats{500})) << "no overflow";
}

TEST_P(ElementwiseTest, LargeAnglesAndHalves) {
  const Doubles angles{1e5, -123456.789, 1e10, 1e22, 3e38}, halves{-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e300};
  const auto sines = host<double>(sin(tensor(angles))), cosines = host<double>(cos(tensor(angles)));
  const auto single = host<float>(sin(tensor(angles).to(f32)));
  for (size_t i = 0; i < angles.size(); ++i) {
    EXPECT_LE(ulps(sines[i], std::sin(angles[i])), 2) << angles[i];
    EXPECT_LE(ulps(cosines[i], std::cos(angles[i])), 2) << angles[i];
    EXPECT_LE(ulps(single[i], std::sin(static_cast<double>(static_cast<float>(angles[i])))), 2) << angles[i];
  }
  EXPECT_EQ(host<double>(round(tensor(halves))), (Doubles{-2, -2, -0., 0, 2, 2, 1e300}));
}

// x + 3 rounds before it is multiplied, so the error is not relative to the result.
TEST_P(ElementwiseTest, HardActivations) {
  const Tensor x = tensor<double>({-inf, -4, -3, -1.5, 0, 1.5, 3, 4, inf, nan});
  const auto sigmoids = host<double>(hardsigmoid(x)), swishes = host<double>(hardswish(x));
  const Doubles sigmoid{0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1}, swish{nan, 0, 0, -0.375, 0, 1.125, 3, 4, inf};
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(sigmoids[i], sigmoid[i]) << i;
    EXPECT_TRUE(i == 0 ? std::isnan(swishes[i]) : swishes[i] == swish[i]) << i;
  }
  EXPECT_TRUE(std::isnan(sigmoids[9]) && std::isnan(swishes[9]));
  EXPECT_EQ(host<int64_t>(relu6(tensor<int64_t>({-5, 3, 9}))), (Ints{0, 3, 6}));
  EXPECT_THROW(hardtanh(x, 1, 0), ValueError);
}

TEST_P(ElementwiseTest, UnaryIntegers) {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const Tensor x = tensor<int64_t>({-5, 0, 7, lowest});
  EXPECT_EQ(host<int64_t>(neg(x)), (Ints{5, 0, -7, lowest}));
  EXPECT_EQ(host<int64_t>(abs(x)), (Ints{5, 0, 7, lowest}));
  EXPECT_EQ(host<int64_t>(sign(x)), (Ints{-1, 0, 1, -1}));
  EXPECT_EQ(host<int64_t>(relu(x)), (Ints{0, 0, 7, 0}));
  EXPECT_EQ(host<int64_t>(clamp(x, -2, 3)), (Ints{-2, 0, 3, -2}));
  const Tensor u = tensor<uint8_t>({0, 1, 200});
  EXPECT_EQ(host<uint8_t>(neg(u)), (Bytes{0, 255, 56}));
  EXPECT_EQ(host<uint8_t>(abs(u)), (Bytes{0, 1, 200}));
  EXPECT_EQ(host<uint8_t>(sign(u)), (Bytes{0, 1, 1}));
  EXPECT_EQ(host<uint8_t>(clamp(u, 1, 100)), (Bytes{1, 1, 100}));
}

TEST_P(ElementwiseTest, BinaryValues) {
  const Tensor a = tensor<float>({1, -2, 3.5f, 0}), b = tensor<float>({4, 0.5f, -7, 2});
  EXPECT_EQ(host<float>(a + b), (Floats{5, -1.5f, -3.5f, 2}));
  EXPECT_EQ(host<float>(a - b), (Floats{-3, -2.5f, 10.5f, -2}));
  EXPECT_EQ(host<float>(a * b), (Floats{4, -1, -24.5f, 0}));
  EXPECT_EQ(host<float>(a / b), (Floats{0.25f, -4, -0.5f, 0}));
  EXPECT_EQ(host<float>(maximum(a, b)), (Floats{4, 0.5f, 3.5f, 2}));
  EXPECT_EQ(host<float>(minimum(a, b)), (Floats{1, -2, -7, 0}));
  EXPECT_EQ(host<float>(a + 2), (Floats{3, 0, 5.5f, 2}));
  EXPECT_EQ(host<float>(2 + a), (Floats{3, 0, 5.5f, 2}));
  EXPECT_EQ(host<float>(a - 1), (Floats{0, -3, 2.5f, -1}));
  EXPECT_EQ(host<float>(1 - a), (Floats{0, 3, -2.5f, 1}));
  EXPECT_EQ(host<float>(a * 2), (Floats{2, -4, 7, 0}));
  EXPECT_EQ(host<float>(0.5 * a), (Floats{0.5f, -1, 1.75f, 0}));
  EXPECT_EQ(host<float>(a / 2), (Floats{0.5f, -1, 1.75f, 0}));
  EXPECT_EQ(host<float>(2 / b), (Floats{0.5f, 4, -2.f / 7.f, 1}));
  EXPECT_EQ(host<float>(-a), (Floats{-1, 2, -3.5f, -0.f}));
}

TEST_P(ElementwiseTest, BinarySpecialValues) {
  const Tensor a = tensor<double>({1, 0, nan, 2, -inf}), b = tensor<double>({0, 0, 1, nan, 3});
  const auto quotient = host<double>(a / b);
  EXPECT_EQ(quotient[0], inf);
  EXPECT_TRUE(std::isnan(quotient[1]));
  for (const auto& y : {host<double>(maximum(a, b)), host<double>(minimum(a, b))}) {
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_TRUE(std::isnan(y[3]));
  }
  EXPECT_EQ(host<double>(maximum(a, b))[4], 3);
  EXPECT_EQ(host<double>(minimum(a, b))[4], -inf);
}

TEST_P(ElementwiseTest, PowValues) {
  const Doubles a = {2, -2, -2, 0, 0, 0, 9, 2, -8, inf}, b = {10, 3, 2, 0, 2, -1, 0.5, -2, 1. / 3, -1};
  const auto y = host<double>(pow(tensor(a), tensor(b)));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LE(ulps(y[i], std::pow(a[i], b[i])), 2) << a[i] << "^" << b[i];
  const auto squares = host<float>(pow(tensor<float>({-3, 0, 5}), 2));
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(ulps(squares[i], Doubles{9, 0, 25}[i]), 4);  // CUDA's powf
  EXPECT_EQ(host<float>(pow(tensor<float>({-3, 0, 5}), 0)), (Floats{1, 1, 1}));
}

TEST_P(ElementwiseTest, IntegersWrapAround) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const Tensor a = tensor<int64_t>({1, -2, most}), b = tensor<int64_t>({3, 4, 1});
  EXPECT_EQ(host<int64_t>(a + b), (Ints{4, 2, std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(host<int64_t>(a - b), (Ints{-2, -6, most - 1}));
  EXPECT_EQ(host<int64_t>(a * 2), (Ints{2, -4, -2}));
  EXPECT_EQ(host<int64_t>(maximum(a, b)), (Ints{3, 4, most}));
  EXPECT_EQ(host<int64_t>(minimum(a, b)), (Ints{1, -2, 1}));
  const Tensor u = tensor<uint8_t>({250, 3}), v = tensor<uint8_t>({10, 5});
  EXPECT_EQ(host<uint8_t>(u + v), (Bytes{4, 8}));
  EXPECT_EQ(host<uint8_t>(u - v), (Bytes{240, 254}));
  EXPECT_EQ(host<uint8_t>(u * v), (Bytes{196, 15}));
}

TEST_P(ElementwiseTest, Comparisons) {
  const Tensor a = tensor<double>({1, 2, 3, nan}), b = tensor<double>({2, 2, 2, nan});
  EXPECT_EQ(host<bool>(eq(a, b)), (Bools{false, true, false, false}));
  EXPECT_EQ(host<bool>(ne(a, b)), (Bools{true, false, true, true}));
  EXPECT_EQ(host<bool>(lt(a, b)), (Bools{true, false, false, false}));
  EXPECT_EQ(host<bool>(le(a, b)), (Bools{true, true, false, false}));
  EXPECT_EQ(host<bool>(gt(a, b)), (Bools{false, false, true, false}));
  EXPECT_EQ(host<bool>(ge(a, b)), (Bools{false, true, true, false}));
  const Tensor n = tensor<int64_t>({-1, 0, 1});
  EXPECT_EQ(host<bool>(eq(n, 0)), (Bools{false, true, false}));
  EXPECT_EQ(host<bool>(ne(n, 0)), (Bools{true, false, true}));
  EXPECT_EQ(host<bool>(lt(n, 0)), (Bools{true, false, false}));
  EXPECT_EQ(host<bool>(le(n, 0)), (Bools{true, true, false}));
  EXPECT_EQ(host<bool>(gt(n, 0)), (Bools{false, false, true}));
  EXPECT_EQ(host<bool>(ge(n, 0)), (Bools{false, true, true}));
  const Tensor c = tensor<bool>({true, false});
  EXPECT_EQ(host<bool>(eq(c, false)), (Bools{false, true}));
  EXPECT_EQ(host<bool>(lt(tensor<uint8_t>({3, 200}), 128)), (Bools{true, false}));
}

TEST_P(ElementwiseTest, Where) {
  const Tensor c = tensor<bool>({true, false}, {2, 1});
  const Tensor a = tensor<float>({1, 2, 3}), b = tensor<float>({10, 20, 30, 40, 50, 60}, {2, 3});
  EXPECT_EQ(host<float>(where(c, a, b)), (Floats{1, 2, 3, 40, 50, 60}));
  const Tensor p = tensor<bool>({true, true, false}), q = tensor<bool>({false, true, true});
  EXPECT_EQ(host<bool>(where(p, q, p)), (Bools{false, true, false}));
}

TEST_P(ElementwiseTest, Broadcasting) {
  const Tensor a = tensor<int64_t>({1, 2, 3, 4, 5, 6}, {2, 1, 3}), b = tensor<int64_t>({10, 20}, {2, 1});
  const Tensor y = a + b;
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(host<int64_t>(y), (Ints{11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26}));
  const Tensor one = full({}, 3, on(i64));
  EXPECT_EQ(host<int64_t>(one - b), (Ints{-7, -17}));
  EXPECT_EQ((one + one).shape(), Shape{});
  EXPECT_EQ((zeros({0, 3}, on(f32)) + zeros({1, 3}, on(f32))).shape(), (Shape{0, 3}));
  EXPECT_EQ(exp(zeros({2, 0}, on(f32))).shape(), (Shape{2, 0}));
}

// An element's result depends only on its operands, not on its neighbours.
TEST_P(ElementwiseTest, AnElementAloneHasTheSameBits) {
  const Tensor all = normal({1155}, on(f32));
  for (const Sample& op : with_formula()) {
    const Tensor y = op({all});
    for (int64_t i : {0, 63, 64, 500, 1154})
      EXPECT_TRUE(same_bits(op({all.slice(0, i, i + 1)}), y.slice(0, i, i + 1)))
          << op.name() << " element " << i;
  }
}

TEST_P(ElementwiseTest, ManyElements) {  // several chunks of several threads
  const int64_t n = 100'003;
  const Tensor a = arange(0, n, 1, on(i64));
  const auto y = host<int64_t>(a * 3 - a);
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[static_cast<size_t>(i)], 2 * i);
  const Tensor square = a.slice(0, 0, 90'000).reshape({300, 300});
  const auto t = host<int64_t>(square.transpose(0, 1) + 0);
  for (int64_t i = 0; i < 90'000; ++i) ASSERT_EQ(t[static_cast<size_t>(i)], i % 300 * 300 + i / 300);
}

TEST_P(ElementwiseTest, Errors) {
  const Tensor f = zeros({2, 3}, on(f32)), d = zeros({2, 3}, on(f64));
  const Tensor n = zeros({2}, on(i64));
  EXPECT_REFUSED(DTypeError, f + d, "add", "f32", "f64");
  EXPECT_REFUSED(ShapeError, f * zeros({2}, on(f32)), "mul", "(2,3)", "(2,)");
  EXPECT_REFUSED(DTypeError, where(n, n, n), "where", "bool", "i64");
  EXPECT_REFUSED(ValueError, n + 0.5, "add", "0.5", "i64");
  EXPECT_REFUSED(ValueError, clamp(f, 2, 1), "clamp", "2", "1");
  EXPECT_REFUSED(ValueError, f + Tensor(), "add", "undefined");
  EXPECT_REFUSED(ValueError, relu(Tensor()), "relu", "undefined");
  EXPECT_REFUSED(ValueError, div(1, Tensor()), "div", "undefined");
  if (device().is_cuda()) {
    EXPECT_REFUSED(DeviceError, f + zeros({2, 3}), "add", "cpu", "cuda:0");
  }
}

// For compute-sanitizer.
// A small case for each edge of the kernels: packets that are not full, memory that is not aligned to them.

DEVICE_SUITE(ElementwiseSanitize);

TEST_P(ElementwiseSanitize, PacketsAndRests) {
  for (DType dtype : {f32, f64, i64, u8, bf16, f16}) {
    for (int64_t n : {1, 15, 16, 17, 100}) {
      const Tensor x = counting({n + 1}, dtype), shifted = x.slice(0, 1, n + 1);
      EXPECT_EQ((shifted - x.slice(0, 0, n)).to(i64).to_vector<int64_t>(), Ints(static_cast<size_t>(n), 1));
      EXPECT_EQ(clamp(shifted, 1, 1).to(i64).to_vector<int64_t>(), Ints(static_cast<size_t>(n), 1));
      EXPECT_EQ((x * 0 + 2).to(i64).to_vector<int64_t>(), Ints(static_cast<size_t>(n + 1), 2));
    }
  }
}

// Gradients of the elementwise ops at points where difference quotients fail: kinks, ties, poles. Expected
// values are computed by hand.

class ElementwiseGradTest : public DeviceTest {
 protected:
  Tensor leaf(const Doubles& values, const Shape& shape) {
    return make(values, shape).set_requires_grad(true);
  }
  Tensor leaf(const Doubles& values) { return leaf(values, {static_cast<int64_t>(values.size())}); }

  /// dy/dx of y = op(x), elementwise.
  Doubles slope(const std::function<Tensor(const Tensor&)>& op, const Doubles& values) {
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
    op(a, b).backward(make({10, 20, 30}, {3}));
    EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{10, 20, 30}));
    EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{10, 20, 30}));
  }
}

TEST_P(ElementwiseGradTest, PowOfZeroIsConstant) {
  constexpr double tiny = std::numeric_limits<double>::denorm_min(),
                   small = 0x1p-149;  // denormal in f64, f32
  const Doubles bases{0, -0.0, nan, inf, -inf, tiny, -tiny, small, -small, 3};
  const Doubles zero(bases.size());
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
  const Tensor a = make({0, -0.0, 0, -0.0, 0, -0.0, 0, -0.0}, {8});
  Tensor b = leaf({2, 3, 0, 0, -1, -1, -2, -2});
  pow(a, b).backward(full({8}, 1, a.options()));
  EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{0, 0, 0, 0, -inf, inf, -inf, -inf}));
  // b a^(b-1) at b = 0 is 0, but its derivative with respect to b is 1 / a.
  const auto f = [](const std::vector<Tensor>& inputs) { return pow(inputs[0], inputs[1]); };
  const std::vector<Tensor> inputs = {leaf({2, 0.5}, {2}), leaf({0, 0}, {2})};
  expect_gradients(f, inputs);
}

TEST_P(ElementwiseGradTest, MaskedGradientsStayFinite) {
  // An infinite gradient of an element that was not chosen must come back as 0, not as 0 * inf.
  const Tensor gradient = make({inf, 2}, {2});
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
  maximum(a, b).backward(make({10, 20, 30}, {3}));
  EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{0, 10, 30}));
  EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{10, 10, 0}));
  a.zero_grad(), b.zero_grad();
  minimum(a, b).backward(make({10, 20, 30}, {3}));
  EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{10, 10, 0}));
  EXPECT_EQ(b.grad().to_vector<double>(), (Doubles{0, 10, 30}));
}

TEST_P(ElementwiseGradTest, PowAtSpecialPoints) {
  //                      0^0  0^2  0^1  (-2)^3  (-2)^0  3^2  2^0
  const Doubles base = {0, 0, 0, -2, -2, 3, 2}, exponent = {0, 2, 1, 3, 0, 2, 0};
  Tensor a = leaf(base), b = make(exponent, {7});
  Tensor y = pow(a, b);
  y.backward(full_like(y.detach(), 1));
  const auto da = a.grad().to_vector<double>();
  const Doubles expected = {0, 0, 1, 12, 0, 6, 0};
  for (size_t i = 0; i < da.size(); ++i)
    EXPECT_DOUBLE_EQ(da[i], expected[i]) << base[i] << "^" << exponent[i];

  Tensor c = leaf({0, 2, 0.5}), d = make({0, 0, 4}, {3});
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
  const Tensor g = make({1, 2, -1, 0.5, 3, 1.5}, {6});
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

// Tiles of the CPU's walk that take several indices of the second dimension (ops/cpu/walk_tiles.cpp).
TEST_P(ElementwiseTest, ShortRowsOfTwoTransposedInputs) {
  for (const DType dtype : {f32, f64, bf16}) {
    const auto numbers = [&](const Shape& shape) {
      return arange(40 * 6 * 5, on(i64)).to(dtype).reshape(shape);
    };
    const Tensor a = numbers({5, 6, 40}).permute({2, 1, 0}), b = numbers({6, 5, 40}).permute({2, 0, 1});
    EXPECT_TRUE(same_bits(a + b, a.contiguous() + b.contiguous())) << dtype;
  }
}

}  // namespace
}  // namespace vox

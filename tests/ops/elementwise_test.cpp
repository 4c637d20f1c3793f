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

/// Numbers of both signs around 0, and in floating dtypes all magnitudes that matter to a function and IEEE's
/// special ones. `many` have small steps.
Tensor interesting_numbers(DType dtype, Device device, bool many) {
  Doubles x;
  if (is_floating(dtype)) {
    const double least = dtype == f32 ? 0x1p-126 : 0x1p-1022, denormal = dtype == f32 ? 0x1p-149 : 0x1p-1074;
    for (const double number : {0., inf, nan, least, denormal, 1., 80.}) x.insert(x.end(), {number, -number});
    for (int i = many ? -1000 : -10; i <= (many ? 1000 : 10); ++i) x.push_back(i * (many ? 0.0041 : 0.5));
  } else {
    for (int i = -10; i <= 10; ++i) x.push_back(i);
    x.push_back(200);
  }
  return from_vector(x, {std::ssize(x)}).to(dtype).to(device);
}

/// |got - expected| in units of the last place of a floating dtype; of another dtype, whether they differ.
double distance(double got, double expected, DType dtype) {
  if (dtype == f64) return ulps(got, expected);
  if (dtype == f32) return ulps(static_cast<float>(got), expected);
  const Tensor wrapped = full({}, expected, {.dtype = f64}).to(i64).to(dtype);
  return std::abs(got - values(wrapped)[0]);
}

DEVICE_SUITE(ElementwiseTest);

TEST_P(ElementwiseTest, ValuesByFormula) {
  for (const Sample& op : with_formula()) {
    const std::vector<Operand> operands = op.operands();
    const int64_t rank = std::ssize(operands);
    for (const DType dtype : op.dtypes) {
      Tensors combined;  // every combination, by broadcasting
      for (const Operand& operand : operands) {
        Shape along = Shape::filled(rank, 1);
        along[std::ssize(combined)] = -1;
        const bool is_bool = operand.holds == Holds::bools;
        combined.push_back((is_bool ? from_vector<bool>({false, true}, {2}, device())
                                    : interesting_numbers(dtype, device(), rank == 1))
                               .reshape(along));
      }
      const Tensor y = op(combined);
      if (is_16_bit(y.dtype())) continue;  // half_test.cpp compares them with f32
      const Doubles got = values(y);
      std::vector<Doubles> elements;
      for (const Tensor& x : combined) elements.push_back(values(x.expand(y.shape())));
      for (size_t i = 0; i < got.size(); ++i) {
        Doubles x;
        for (const Doubles& of_operand : elements) x.push_back(of_operand[i]);
        const double expected = op.expected(x);
        EXPECT_LE(distance(got[i], expected, y.dtype()), op.ulps)
            << op.name() << " of " << dtype << " at " << ::testing::PrintToString(x) << " is " << got[i]
            << ", not " << expected;
      }
    }
  }
}

TEST_P(ElementwiseTest, FunctionsAtTheEdgeOfTheirRange) {
  const auto exps =
      exp(numbers({-87.5f, -88.8f, -95, -103, -104, -1000, 88.7f, 88.8f, 1000}, f32)).to_vector<float>();
  const double xs[] = {-87.5f, -88.8f, -95, -103, -104, -1000, 88.7f, 88.8f, 1000};
  for (size_t i = 0; i < exps.size(); ++i)
    EXPECT_LE(ulps(exps[i], static_cast<float>(std::exp(xs[i]))), 2) << xs[i];
  EXPECT_EQ(values(exp(numbers({-1000, -746, 710, 1000}))), (Doubles{0, 0, inf, inf}));
  for (const double x : {-744., -740., 709.5})
    EXPECT_LE(ulps(values(exp(numbers({x})))[0], std::exp(x)), 1) << x;
  EXPECT_LE(ulps(log(numbers({1e-40f}, f32)).to_vector<float>()[0], std::log(static_cast<double>(1e-40f))),
            1);
  EXPECT_EQ(values(sigmoid(numbers({-1000, 1000}, f32))), (Doubles{0, 1}));
  EXPECT_EQ(values(tanh(numbers({-1000, 1000}, f32))), (Doubles{-1, 1}));
  EXPECT_EQ(values(gelu(numbers({-1000, 1000}, f32))), (Doubles{0, 1000}));
  EXPECT_EQ(values(silu(numbers({-1000, 1000}, f32))), (Doubles{0, 1000}));
  EXPECT_EQ(values(mish(numbers({-1000, 1e30f}, f32))), (Doubles{0, 1e30f}));
  EXPECT_EQ(values(elu(numbers({-1000, 1e30f}, f32))), (Doubles{-1, 1e30f}));
  EXPECT_EQ(values(softplus(numbers({-1000, 1e30f}, f32))), (Doubles{0, 1e30f}));
  EXPECT_EQ(values(softplus(numbers({500}, f32), 1, 1000)), (Doubles{500})) << "no overflow";
  for (const DType dtype : {f32, f64}) {
    const double denormal = dtype == f32 ? 0x1p-149 : 0x1p-1074;
    EXPECT_EQ(values(tanh(numbers({denormal}, dtype))), (Doubles{denormal}));
    EXPECT_EQ(values(log(numbers({1}, dtype))), (Doubles{0}));
    for (auto* op : {&tanh, &erf, &relu})
      EXPECT_TRUE(std::signbit(values(op(numbers(Doubles(17, -0.), dtype))).back()));
  }
}

TEST_P(ElementwiseTest, LargeAnglesAndHalves) {
  const Doubles angles{1e5, -123456.789, 1e10, 1e22, 3e38}, halves{-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e300};
  const auto sines = values(sin(numbers(angles))), cosines = values(cos(numbers(angles)));
  const auto single = sin(numbers(angles).to(f32)).to_vector<float>();
  for (size_t i = 0; i < angles.size(); ++i) {
    EXPECT_LE(ulps(sines[i], std::sin(angles[i])), 2) << angles[i];
    EXPECT_LE(ulps(cosines[i], std::cos(angles[i])), 2) << angles[i];
    EXPECT_LE(ulps(single[i], std::sin(static_cast<double>(static_cast<float>(angles[i])))), 2) << angles[i];
  }
  EXPECT_EQ(values(round(numbers(halves))), (Doubles{-2, -2, -0., 0, 2, 2, 1e300}));
}

TEST_P(ElementwiseTest, TheLowestInteger) {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const Tensor x = ints({lowest}, {1});
  EXPECT_EQ(neg(x).to_vector<int64_t>(), (Ints{lowest}));
  EXPECT_EQ(abs(x).to_vector<int64_t>(), (Ints{lowest}));
  EXPECT_EQ(sign(x).to_vector<int64_t>(), (Ints{-1}));
  EXPECT_EQ(relu(x).to_vector<int64_t>(), (Ints{0}));
  EXPECT_EQ(clamp(x, -2, 3).to_vector<int64_t>(), (Ints{-2}));
}

TEST_P(ElementwiseTest, Operators) {
  const Tensor a = numbers({1, -2, 3.5f, 0}, f32), b = numbers({4, 0.5f, -7, 2}, f32);
  EXPECT_EQ(values(a + b), (Doubles{5, -1.5f, -3.5f, 2}));
  EXPECT_EQ(values(a - b), (Doubles{-3, -2.5f, 10.5f, -2}));
  EXPECT_EQ(values(a * b), (Doubles{4, -1, -24.5f, 0}));
  EXPECT_EQ(values(a / b), (Doubles{0.25f, -4, -0.5f, 0}));
  EXPECT_EQ(values(a + 2), (Doubles{3, 0, 5.5f, 2}));
  EXPECT_EQ(values(2 + a), (Doubles{3, 0, 5.5f, 2}));
  EXPECT_EQ(values(a - 1), (Doubles{0, -3, 2.5f, -1}));
  EXPECT_EQ(values(1 - a), (Doubles{0, 3, -2.5f, 1}));
  EXPECT_EQ(values(a * 2), (Doubles{2, -4, 7, 0}));
  EXPECT_EQ(values(0.5 * a), (Doubles{0.5f, -1, 1.75f, 0}));
  EXPECT_EQ(values(a / 2), (Doubles{0.5f, -1, 1.75f, 0}));
  EXPECT_EQ(values(2 / b), (Doubles{0.5f, 4, -2.f / 7.f, 1}));
  EXPECT_EQ(values(-a), (Doubles{-1, 2, -3.5f, -0.f}));
}

TEST_P(ElementwiseTest, IntegersWrapAround) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const Tensor a = ints({1, -2, most}, {3}), b = ints({3, 4, 1}, {3});
  EXPECT_EQ((a + b).to_vector<int64_t>(), (Ints{4, 2, std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ((a - b).to_vector<int64_t>(), (Ints{-2, -6, most - 1}));
  EXPECT_EQ((a * 2).to_vector<int64_t>(), (Ints{2, -4, -2}));
  EXPECT_EQ(maximum(a, b).to_vector<int64_t>(), (Ints{3, 4, most}));
  EXPECT_EQ(minimum(a, b).to_vector<int64_t>(), (Ints{1, -2, 1}));
}

TEST_P(ElementwiseTest, Broadcasting) {
  const Tensor a = ints({1, 2, 3, 4, 5, 6}, {2, 1, 3}), b = ints({10, 20}, {2, 1});
  const Tensor y = a + b;
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(y.to_vector<int64_t>(), (Ints{11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26}));
  const Tensor one = full({}, 3, on(i64));
  EXPECT_EQ((one - b).to_vector<int64_t>(), (Ints{-7, -17}));
  EXPECT_EQ((one + one).shape(), Shape{});
  EXPECT_EQ((zeros({0, 3}, on(f32)) + zeros({1, 3}, on(f32))).shape(), (Shape{0, 3}));
  EXPECT_EQ(exp(zeros({2, 0}, on(f32))).shape(), (Shape{2, 0}));
}

// An element's result depends only on its operands, not on its neighbours.
TEST_P(ElementwiseTest, AnElementAloneHasTheSameBits) {
  const Tensor x = normal({1155}, on(f32)), positive = abs(x), condition = gt(x, 0);
  for (const Sample& op : with_formula()) {
    Tensors all, alone;
    for (const Operand& operand : op.operands())
      all.push_back(operand.holds == Holds::bools      ? condition
                    : operand.holds == Holds::positive ? positive
                                                       : x);
    const Tensor y = op(all);
    for (int64_t i : {0, 63, 64, 500, 1154}) {
      alone.clear();
      for (const Tensor& t : all) alone.push_back(t.slice(0, i, i + 1));
      EXPECT_TRUE(same_bits(op(alone), y.slice(0, i, i + 1))) << op.name() << " element " << i;
    }
  }
}

TEST_P(ElementwiseTest, ManyElements) {  // several chunks of several threads
  const int64_t n = 100'003;
  const Tensor a = arange(0, n, 1, on(i64));
  const auto y = (a * 3 - a).to_vector<int64_t>();
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[static_cast<size_t>(i)], 2 * i);
  const Tensor square = a.slice(0, 0, 90'000).reshape({300, 300});
  const auto t = (square.transpose(0, 1) + 0).to_vector<int64_t>();
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
  EXPECT_THROW(hardtanh(f, 1, 0), ValueError);
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
  /// dy/dx of y = op(x), elementwise.
  Doubles slope(const std::function<Tensor(const Tensor&)>& op, const Doubles& at) {
    const Tensor x = leaf(at), y = op(x);
    y.backward(full_like(y.detach(), 1));
    return values(x.grad());
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
    op(a, b).backward(numbers({10, 20, 30}));
    EXPECT_EQ(values(a.grad()), (Doubles{10, 20, 30}));
    EXPECT_EQ(values(b.grad()), (Doubles{10, 20, 30}));
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
    EXPECT_EQ(values(a.grad()), zero) << dtype;
  }
  EXPECT_EQ(slope([](const Tensor& x) { return pow(x, 0); }, bases), zero);
}

TEST_P(ElementwiseGradTest, PowOfZeroByItsExponent) {
  // y log(a), but 0 where a = 0 and the exponent is not negative.
  const Tensor a = numbers({0, -0.0, 0, -0.0, 0, -0.0, 0, -0.0});
  Tensor b = leaf({2, 3, 0, 0, -1, -1, -2, -2});
  pow(a, b).backward(full({8}, 1, a.options()));
  EXPECT_EQ(values(b.grad()), (Doubles{0, 0, 0, 0, -inf, inf, -inf, -inf}));
  // b a^(b-1) at b = 0 is 0, but its derivative with respect to b is 1 / a.
  const auto f = [](const std::vector<Tensor>& inputs) { return pow(inputs[0], inputs[1]); };
  const std::vector<Tensor> inputs = {leaf({2, 0.5}), leaf({0, 0})};
  expect_gradients(f, inputs);
}

TEST_P(ElementwiseGradTest, MaskedGradientsStayFinite) {
  // An infinite gradient of an element that was not chosen must come back as 0, not as 0 * inf.
  const Tensor gradient = numbers({inf, 2});
  Tensor a = leaf({1, 1}), b = leaf({1, 1}), x = leaf({-1, 1}), y = leaf({-1, 1});
  where(from_vector<bool>({false, true}, {2}, device()), a, b).backward(gradient);
  EXPECT_EQ(values(a.grad()), (Doubles{0, 2}));
  EXPECT_EQ(values(b.grad()), (Doubles{inf, 0}));
  relu(x).backward(gradient);
  EXPECT_EQ(values(x.grad()), (Doubles{0, 2}));
  clamp(y, 0, 2).backward(gradient);
  EXPECT_EQ(values(y.grad()), (Doubles{0, 2}));
  Tensor z = leaf({-0.5, 1});  // its slope there is positive
  gelu_tanh(z).backward(gradient);
  EXPECT_EQ(values(z.grad())[0], inf);
  Tensor c = leaf({0, 1}), d = leaf({1, 0});
  maximum(c, d).backward(gradient);
  EXPECT_EQ(values(c.grad()), (Doubles{0, 2}));
  EXPECT_EQ(values(d.grad()), (Doubles{inf, 0}));
}

TEST_P(ElementwiseGradTest, TiesShare) {
  Tensor a = leaf({1, 5, 3}), b = leaf({2, 5, 1});
  maximum(a, b).backward(numbers({10, 20, 30}));
  EXPECT_EQ(values(a.grad()), (Doubles{0, 10, 30}));
  EXPECT_EQ(values(b.grad()), (Doubles{10, 10, 0}));
  a.zero_grad(), b.zero_grad();
  minimum(a, b).backward(numbers({10, 20, 30}));
  EXPECT_EQ(values(a.grad()), (Doubles{10, 10, 0}));
  EXPECT_EQ(values(b.grad()), (Doubles{0, 10, 30}));
}

TEST_P(ElementwiseGradTest, PowAtSpecialPoints) {
  //                      0^0  0^2  0^1  (-2)^3  (-2)^0  3^2  2^0
  const Doubles base = {0, 0, 0, -2, -2, 3, 2}, exponent = {0, 2, 1, 3, 0, 2, 0};
  Tensor a = leaf(base), b = numbers(exponent);
  Tensor y = pow(a, b);
  y.backward(full_like(y.detach(), 1));
  const auto da = values(a.grad());
  const Doubles expected = {0, 0, 1, 12, 0, 6, 0};
  for (size_t i = 0; i < da.size(); ++i)
    EXPECT_DOUBLE_EQ(da[i], expected[i]) << base[i] << "^" << exponent[i];

  EXPECT_DOUBLE_EQ(slope([](const Tensor& x) { return pow(x, 2); }, {0, -3})[1], -6);
  EXPECT_EQ(slope([](const Tensor& x) { return pow(x, 1); }, {0, -3}), (Doubles{1, 1}));
  const Tensor zero = leaf({0});
  const Tensor first = grad({pow(zero, 2)}, {zero}, {.create_graph = true})[0];
  EXPECT_EQ(grad({first}, {zero})[0].item<double>(), 2);
}

// In 16 bits the result is the exact gradient, rounded once.
TEST_P(ElementwiseGradTest, GradientsIn16BitsAreRoundedOnce) {
  const Tensor wide = leaf({-2.5, -0.75, 0.375, 0.875, 1.625, -1.25});
  const Tensor g = numbers({1, 2, -1, 0.5, 3, 1.5});
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

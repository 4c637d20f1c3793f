#include "tests/support/test.h"

// The calls that a user of PyTorch writes, each as it is written; and the ops that are compositions, on both
// devices (gradcheck_test.cpp checks their gradients).

namespace vox {
namespace {

DEVICE_SUITE(CallsTest);

TEST_P(CallsTest, AnIntegerStandsForAListOfDims) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(mean(x, 2, true).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(values(sum(x, -1)), values(sum(x, {2})));
  EXPECT_EQ(x.mean(1).shape(), (Shape{2, 4}));
  EXPECT_EQ(zeros(3, device()).shape(), (Shape{3}));
  EXPECT_EQ(x.reshape(-1).shape(), (Shape{24}));
  EXPECT_EQ(argmax(x, 0).shape(), (Shape{3, 4}));
}

TEST_P(CallsTest, ADeviceStandsForOptions) {
  EXPECT_EQ(full({2}, 1.5, device()).to_vector<float>(), (Floats{1.5f, 1.5f}));
  EXPECT_EQ(zeros({2}, device()).device(), device());
  EXPECT_EQ(rand({2}, device()).dtype(), f32);
  EXPECT_EQ(randint(0, 5, {2}, device()).dtype(), i64);
}

TEST_P(CallsTest, ClampWithOneBoundOrTensors) {
  const Tensor x = numbers({-2, -1, 0, 3, nan});
  EXPECT_EQ(values(clamp(x, {.min = -1}))[0], -1);
  EXPECT_EQ(values(clamp(x, {.min = -1}))[3], 3);
  EXPECT_EQ(values(clamp(x, {.max = 0}))[3], 0);
  EXPECT_EQ(values(clamp(x, {.min = -1, .max = 1}))[3], 1);
  EXPECT_TRUE(std::isnan(values(clamp(x, {.max = 0}))[4]));
  const Tensor whole = ints({-5, 5}, {2});
  EXPECT_EQ(clamp(whole, {.min = 0}).to_vector<int64_t>(), (Ints{0, 5}));
  const Tensor bytes = from_vector<uint8_t>({1, 255}, {2}, device());
  EXPECT_EQ(clamp(bytes, {.min = 2}).to_vector<uint8_t>(), (Bytes{2, 255}));
  EXPECT_EQ(clamp(bytes, {.max = 2}).to_vector<uint8_t>(), (Bytes{1, 2}));
  EXPECT_THROW(clamp(x, ClampOptions{}), ValueError);

  const Tensor low = numbers({-1, -1, 1, 5, 0}), high = numbers({1, 1, 2, 4, 1});
  const Doubles y = values(clamp(x, low, high));
  EXPECT_EQ(Doubles(y.begin(), y.begin() + 4), (Doubles{-1, -1, 1, 4}));
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_TRUE(std::isnan(values(clamp(numbers({0}), numbers({nan}), {}))[0]));
  // At a bound x has the gradient; a bound has it where it replaces x.
  Tensor a = numbers({-2, -1, 0, 3}).set_requires_grad(), b = numbers({-1, -1, -1, -1}).set_requires_grad();
  sum(clamp(a, b, {})).backward();
  EXPECT_EQ(values(a.grad()), (Doubles{0, 1, 1, 1}));
  EXPECT_EQ(values(b.grad()), (Doubles{1, 0, 0, 0}));
  // At a NaN nobody has it, nor where x is below equal bounds; max has it where min > max. As in PyTorch.
  a = numbers({nan, 0, 0, -2, 2, 0}).set_requires_grad();
  Tensor d = numbers({0, nan, 0, 1, 1, 2}).set_requires_grad();
  Tensor c = numbers({1, 1, nan, 1, 1, 1}).set_requires_grad();
  sum(clamp(a, d, c)).backward();
  EXPECT_EQ(values(a.grad()), (Doubles{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(d.grad()), (Doubles{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(c.grad()), (Doubles{0, 0, 0, 0, 1, 1}));
  // A bound that is broadcast sums its gradient.
  Tensor row = numbers({0, 5}).set_requires_grad();
  sum(clamp(numbers({-1, 6, 1, 7, -2, 1}).reshape({3, 2}), {}, row)).backward();
  EXPECT_EQ(values(row.grad()), (Doubles{1, 2}));
}

TEST_P(CallsTest, NumbersAsOperands) {
  const Tensor x = numbers({-1, 0.5, 2});
  EXPECT_EQ(values(maximum(x, 0.5)), (Doubles{0.5, 0.5, 2}));
  EXPECT_EQ(values(minimum(x, 0.5)), (Doubles{-1, 0.5, 0.5}));
  const Doubles powers = values(pow(2, x)), expected{0.5, std::sqrt(2.0), 4};
  for (size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(powers[i], expected[i]);  // 4 units of the last place
  EXPECT_EQ(values(where(x > 0, x, 0)), (Doubles{0, 0.5, 2}));
  EXPECT_EQ((x >= 0.5).to_vector<bool>(), (x > numbers({-1, 0, 0})).to_vector<bool>());
  EXPECT_EQ((x < 0.5).to_vector<bool>(), (x <= numbers({-1, 0, 0})).to_vector<bool>());
  EXPECT_EQ(values(where(gt(x, 0), 7, x)), (Doubles{-1, 7, 7}));
  EXPECT_EQ(eq(x > 0, false).to_vector<bool>(), (Bools{true, false, false}));
  EXPECT_EQ(values(masked_fill(x, lt(x, 0), -inf)), (Doubles{-inf, 0.5, 2}));
  EXPECT_THROW(maximum(ints({1}, {1}), 0.5), ValueError);
}

TEST_P(CallsTest, CompoundAssignmentWritesInPlace) {
  Tensor x = numbers({1, 2, 3}), same = x;
  const Tensor y = numbers({1, 1, 2});
  x += y;
  x -= 1;
  x *= y;
  x /= 2;
  x += 1;
  x -= y;
  x /= y;
  x *= 4;
  EXPECT_EQ(values(x), (Doubles{2, 4, 6}));
  EXPECT_EQ(values(same), values(x)) << "another handle on the same memory";
  x[0] += 5;
  EXPECT_EQ(values(x), (Doubles{7, 4, 6}));
  Tensor bytes = from_vector<uint8_t>({1, 2}, {2}, device());
  bytes -= 1;
  EXPECT_EQ(bytes.to_vector<uint8_t>(), (Bytes{0, 1}));
  EXPECT_THROW(bytes /= 2, DTypeError);
  x.set_requires_grad();
  EXPECT_THROW(x += y, GradError);
}

TEST_P(CallsTest, IndicesAndSlices) {
  const Tensor x = counting({4, 3});
  EXPECT_EQ(values(x[1]), (Doubles{3, 4, 5}));
  EXPECT_EQ(x[-1][0].item<double>(), 9);
  EXPECT_EQ(values(x[{.start = 1, .end = 3}]), (Doubles{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(values(x[{.step = 2}]), (Doubles{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(values(x.slice(0, 3)), (Doubles{9, 10, 11}));
}

TEST_P(CallsTest, BackwardWithOptionsOnAConstTensor) {
  const Tensor x = numbers({3}).set_requires_grad();
  const Tensor y = x * x;
  y.backward({.retain_graph = true});
  y.backward({.create_graph = true});
  EXPECT_EQ(values(x.grad()), (Doubles{12}));
}

TEST_P(CallsTest, MaxAndMinAlongOneDimension) {
  const Tensor x = make({1, 5, 5, 2, -1, -1, nan, 0, nan}, {3, 3});
  const auto [largest, at] = max(x, 1);
  EXPECT_EQ(largest.shape(), (Shape{3}));
  EXPECT_EQ(at.to_vector<int64_t>(), (Ints{1, 0, 0}));
  EXPECT_EQ(values(x.min(0, true).values).size(), 3u);
  EXPECT_EQ(x.min(-1, true).indices.shape(), (Shape{3, 1}));
  EXPECT_EQ(max(x, {1}).shape(), (Shape{3})) << "a list of dims gives a tensor";
  Tensor leaf = x.clone().set_requires_grad();
  max(leaf, 1).values.backward(numbers({1, 2, 3}));
  EXPECT_EQ(values(leaf.grad()), (Doubles{0, 1, 0, 2, 0, 0, 3, 0, 0})) << "the first extremum has all of it";
}

TEST_P(CallsTest, Prod) {
  const Tensor x = make({1, 2, 3, 4, 0, 6, 7, 8, 9, 10}, {2, 5});
  EXPECT_EQ(values(prod(x)), (Doubles{0}));
  EXPECT_EQ(values(prod(x, 1)), (Doubles{0, 30240}));
  EXPECT_EQ(prod(x, 0, true).shape(), (Shape{1, 5}));
  EXPECT_EQ(prod(zeros({2, 0}, device()), 1).to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(prod(from_vector<uint8_t>({20, 20}, {2}, device())).item<int64_t>(), 400);
  EXPECT_EQ(prod(full({}, 3, device()), 0).item(), 3);
  const Tensor one = full({1, 2}, 3, device());
  prod(one, 0).zero_();
  EXPECT_EQ(values(one), (Doubles{3, 3}));  // a product of one element shares no memory with it
  const Tensor leaf = make({1, -2, 0, 0.5, 2, 3, -1, 1.5, 0, 0, 2, 1}, {2, 3, 2}).set_requires_grad();
  for (const Shape& dims : {Shape{}, {0}, {1}, {2}, {0, 2}})
    expect_gradients([&](const auto& t) { return prod(t[0], dims); }, {leaf}, str(dims));
}

TEST_P(CallsTest, AnyAndAll) {
  const Tensor x = make({0, 1, 2, 3, 0, 0}, {3, 2});
  EXPECT_EQ(any(x, 1).to_vector<bool>(), (Bools{true, true, false}));
  EXPECT_EQ(all(x, 1, true).to_vector<bool>(), (Bools{false, true, false}));
  EXPECT_TRUE(any(gt(x, 2)).item<bool>());
  EXPECT_FALSE(any(zeros({0}, device())).item<bool>());
  EXPECT_TRUE(all(zeros({0}, device())).item<bool>());
}

TEST_P(CallsTest, TestsOfElements) {
  const Tensor x = numbers({0, nan, inf, -inf, 1e300});
  const Tensor whole = ints({3, 0}, {2});
  EXPECT_EQ(floor(whole).to_vector<int64_t>(), (Ints{3, 0}));
  EXPECT_NE(floor(whole).impl()->storage, whole.impl()->storage);
  const Tensor a = ints({0, 0, 2, 2}, {4}), b = numbers({0, 1, 0, nan});  // may have two dtypes
  EXPECT_EQ(logical_and(a, b).to_vector<bool>(), (Bools{false, false, false, true}));
  EXPECT_EQ(logical_or(a, b).to_vector<bool>(), (Bools{false, true, true, true}));
  EXPECT_EQ(logical_xor(a, b).to_vector<bool>(), (Bools{false, true, true, false}));
  EXPECT_TRUE(equal(whole, whole.clone()));
  EXPECT_FALSE(equal(x, x)) << "NaN";
  EXPECT_FALSE(equal(whole, whole.to(f32)));
  EXPECT_FALSE(equal(whole, whole.reshape({1, 2})));
  EXPECT_TRUE(allclose(numbers({1, inf}), numbers({1 + 1e-6, inf})));
  EXPECT_FALSE(allclose(numbers({1}), numbers({1.1})));
  EXPECT_FALSE(allclose(numbers({inf}), numbers({-inf})));
  EXPECT_FALSE(allclose(numbers({1}), numbers({inf})));
  EXPECT_FALSE(allclose(x, x));
  EXPECT_TRUE(allclose(x, x, 1e-5, 1e-8, true));
  EXPECT_TRUE(allclose(numbers({1}), numbers({1.1}), 0, 0.2));
  EXPECT_MESSAGE(ValueError, allclose(whole, whole, -1, 0),
                 "allclose: rtol and atol must be >= 0, got -1 and 0");
  for (double bad : {-1e-300, nan}) {
    EXPECT_ERRORS(ValueError, allclose(whole, whole, bad, 0), allclose(whole, whole, 0, bad));
  }
  EXPECT_TRUE(allclose(full({2}, 1, on(bf16)), ones({2}, on(bf16))));
}

TEST_P(CallsTest, FlipAndRoll) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(flip(x, 1)), (Doubles{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(values(flip(x, {0, -1})), (Doubles{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values(flip(x[0][0], 0)), (Doubles{0}));
  EXPECT_THROW(flip(x, {1, -1}), ShapeError);
  EXPECT_EQ(values(roll(x, 1, 1)), (Doubles{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(values(roll(x, {-4, 3}, {1, 0})), (Doubles{4, 5, 3, 1, 2, 0}));
  EXPECT_EQ(values(roll(x, 2)), (Doubles{4, 5, 0, 1, 2, 3}));
  EXPECT_EQ(values(roll(x, std::numeric_limits<int64_t>::min(), 1)), values(roll(x, 1, 1)));
  EXPECT_THROW(roll(x, {1, 2}, 0), ShapeError);
  EXPECT_THROW(roll(x, Shape{}), ValueError);
  Tensor copy = flip(x, Shape{});
  copy += 1;
  EXPECT_EQ(x[0][0].item<double>(), 0) << "flip copies";
}

TEST_P(CallsTest, PaddingModes) {
  const Tensor x = counting({1, 4});
  EXPECT_EQ(values(pad(x, {2, 3}, PadMode::reflect)), (Doubles{2, 1, 0, 1, 2, 3, 2, 1, 0}));
  EXPECT_EQ(values(pad(x, {2, 1}, PadMode::replicate)), (Doubles{0, 0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(values(pad(x, {2, 4}, PadMode::circular)), (Doubles{2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_THROW(pad(x, {-1, 0}, PadMode::replicate), ValueError);
}

TEST_P(CallsTest, OneHot) {
  const Tensor classes = ints({2, 0}, {2, 1});
  const Tensor y = one_hot(classes, 3);
  EXPECT_EQ(y.shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(y.to_vector<int64_t>(), (Ints{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(one_hot(classes.slice(0, 0, 0), 3).shape(), (Shape{0, 1, 3}));
  EXPECT_THROW(one_hot(classes, 2), ValueError);
  EXPECT_REFUSED(ValueError, one_hot(classes, 0), "num_classes must be >= 1");
  EXPECT_THROW(one_hot(classes.to(f32), 3), DTypeError);
}

TEST_P(CallsTest, LinspaceAndRandomNumbers) {
  EXPECT_EQ(linspace(0, 1, 5, device()).to_vector<float>(), (Floats{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(3, 4, 1, device()).to_vector<float>(), (Floats{3}));
  EXPECT_EQ(linspace(3, 4, 0, device()).numel(), 0);
  EXPECT_EQ(linspace(-0.1, 0.7, 7, on(f64)).to_vector<double>().back(), 0.7);
  EXPECT_THROW(linspace(0, 1, -1), ValueError);
  EXPECT_THROW(linspace(0, 1, 3, {i64}), DTypeError);

  Generator generator(7);
  const Tensor drawn = bernoulli(full({1000}, 0.25, device()), generator);
  EXPECT_NEAR(drawn.mean().item(), 0.25, 0.06);
  EXPECT_TRUE(all(logical_or(eq(drawn, 0), eq(drawn, 1))).item<bool>());
  EXPECT_EQ(bernoulli(numbers({0, 1})).to_vector<double>(), (Doubles{0, 1}));
  EXPECT_ERRORS(ValueError, bernoulli(numbers({1.5})), bernoulli(numbers({nan})));

  Ints order = randperm(100, device(), generator).to_vector<int64_t>();
  EXPECT_NE(order[0] * 100 + order[1], 1) << "not in order";
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, arange(100, {.dtype = i64}).to_vector<int64_t>());
  EXPECT_EQ(randperm(0, device()).numel(), 0);
  EXPECT_THROW(randperm(-1), ValueError);
}

TEST_P(CallsTest, Bmm) {
  const Tensor a = counting({2, 2, 3}), b = counting({2, 3, 1});
  EXPECT_EQ(values(bmm(a, b)), values(matmul(a, b)));
  EXPECT_ERRORS(ShapeError, bmm(a, b[0]), bmm(a, b[{.end = 1}]));
}

TEST_P(CallsTest, TensorsOfRank0HaveDimension0) {
  const Tensor x = make({2}, {});
  EXPECT_EQ(sum(x).item() + mean(x).item() + max(x).item(), 6);
  EXPECT_EQ(argmin(x).item<int64_t>(), 0);
  for (const int64_t dim : {0, -1}) {
    EXPECT_EQ(sum(x, dim).item<double>(), 2);
    EXPECT_EQ(mean(x, dim, true).shape(), (Shape{}));
    EXPECT_EQ(max(x, dim).values.item<double>(), 2);
    EXPECT_EQ(max(x, dim).indices.item<int64_t>(), 0);
    EXPECT_EQ(argmin(x, dim).item<int64_t>(), 0);
    EXPECT_EQ(softmax(x, dim).item<double>(), 1);
    EXPECT_EQ(logsumexp(x, dim).item<double>(), 2);
    EXPECT_EQ(x.squeeze(dim).item<double>(), 2);
    EXPECT_EQ(x.transpose(dim, 0).item<double>(), 2);
    EXPECT_EQ(x.flatten().shape(), (Shape{1}));
  }
  EXPECT_ERRORS(ShapeError, sum(x, 1), x.select(0, 0));
}

TEST_P(CallsTest, GeluByTanh) {
  EXPECT_TRUE(std::isnan(values(gelu_tanh(numbers({nan})))[0]));
  const Doubles x{-8, -1, 0, 0.5, 3};
  const Doubles y = values(gelu_tanh(numbers(x)));
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(
        y[i],
        0.5 * x[i] * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x[i] + 0.044715 * std::pow(x[i], 3)))),
        1e-13);
}

TEST_P(CallsTest, InterpolateOfPicturesAndRows) {
  const Tensor x = counting({2, 2, 4, 5}), g = counting({2, 2, 5});
  EXPECT_EQ(interpolate(x, {.size = {1, 8, 3}}).shape(), (Shape{2, 2, 8, 3}));
  EXPECT_EQ(interpolate(g, {.scale_factor = 2}).shape(), (Shape{2, 2, 10}));
  const InterpolateOptions twice{.scale_factor = 2, .mode = InterpolateOptions::Mode::bilinear};
  const Tensor same = interpolate(x.unsqueeze(2), {.size = {1, 8, 10}, .mode = twice.mode});
  EXPECT_EQ(values(interpolate(x, twice)), values(same.squeeze(2)));
  EXPECT_THROW(interpolate(x[0][0], twice), ShapeError);
}

TEST_P(CallsTest, BatchNormWithoutBias) {
  const Tensor x = counting({4, 2, 3}), weight = numbers({2, 3});
  const Tensor y = batch_norm(x, {}, {}, weight, {}, {.training = true});
  EXPECT_EQ(values(y), values(batch_norm(x, {}, {}, weight, zeros({2}, on(f64)), {.training = true})));
}

TEST(Calls, ALocalStructAsAFunction) {
  struct Twice : Function<Twice> {
    static const char* name() { return "twice"; }
    Tensor forward(FunctionContext&, const std::vector<Tensor>& inputs) { return inputs[0] * 2; }
    std::vector<Tensor> backward(FunctionContext&, const Tensor& g) { return {g * 2}; }
  };
  Tensor x = ones({2}).set_requires_grad();
  sum(Twice().apply({x})).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{2, 2}));
}

TEST(Calls, MemoryOfTheCpu) {
  const MemoryStats before = memory_stats();
  reset_peak_memory_stats();
  {
    const Tensor x = zeros({1000});
    EXPECT_EQ(memory_stats().in_use, before.in_use + 4000);
  }
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.in_use, before.in_use);
  EXPECT_EQ(after.peak_in_use, before.in_use + 4000);
  EXPECT_GE(after.reserved, after.in_use);
  EXPECT_GE(after.peak_reserved, after.peak_in_use);
}

}  // namespace
}  // namespace vox

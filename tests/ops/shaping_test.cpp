#include "tests/support/test.h"

namespace vox {
namespace {

constexpr DType dtypes[] = {f32, f64, i64, u8, boolean};

class Shaping : public DeviceTest {
 protected:
  static Tensor index(const Ints& v) { return ints(v, {static_cast<int64_t>(v.size())}); }
};
INSTANTIATE_TEST_SUITE_P(, Shaping, devices(), device_name);

TEST_P(Shaping, CatJoinsEveryDtype) {
  for (const DType dtype : dtypes) {
    const Tensor a = make({1, 0, 1, 1}, {2, 2}, dtype), b = make({0, 1}, {2, 1}, dtype);
    const Tensor y = cat({a, b, a}, -1);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.shape(), (Shape{2, 5}));
    EXPECT_EQ(values(y), (Doubles{1, 0, 0, 1, 0, 1, 1, 1, 1, 1}));
  }
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(cat({x, x.slice(0, 1, 2)})), (Doubles{0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(values(cat({x.transpose(0, 1), x.transpose(0, 1)}, 1)),
            (Doubles{0, 3, 0, 3, 1, 4, 1, 4, 2, 5, 2, 5}));
  EXPECT_EQ(values(cat({x.slice(0, 0, 0), x})), values(x));
  const Tensor alone = cat({x});
  EXPECT_NE(alone.impl()->storage, x.impl()->storage);
  EXPECT_EQ(values(alone), values(x));
}

TEST_P(Shaping, StackAddsADimension) {
  const Tensor a = counting({3}), b = a + 10;
  EXPECT_EQ(values(stack({a, b})), (Doubles{0, 1, 2, 10, 11, 12}));
  EXPECT_EQ(values(stack({a, b}, 1)), (Doubles{0, 10, 1, 11, 2, 12}));
  EXPECT_EQ(stack({a, b}, -1).shape(), (Shape{3, 2}));
  EXPECT_EQ(stack({counting({}), counting({})}).shape(), (Shape{2}));
}

TEST_P(Shaping, CatGradientIsItsSlices) {
  Tensor a = counting({2, 1}).set_requires_grad(), b = counting({2, 2}).set_requires_grad();
  const Tensor none = counting({2, 1});
  Tensor g = make({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5});
  cat({a, none, b, a}, 1).backward(g);
  EXPECT_EQ(values(a.grad()), (Doubles{1 + 5, 6 + 10}));
  EXPECT_EQ(values(b.grad()), (Doubles{3, 4, 8, 9}));
  EXPECT_FALSE(none.grad().defined());
  g.fill_(0);  // gradients do not share memory with the caller's
  EXPECT_EQ(values(b.grad()), (Doubles{3, 4, 8, 9}));
}

TEST_P(Shaping, CatAndStackRefuse) {
  const Tensor x = counting({2, 3});
  EXPECT_ERRORS(ValueError, cat({}), cat({x, {}}), stack({}));
  EXPECT_ERRORS(ShapeError, cat({x, x}, 2), cat({x, counting({2, 2})}, 0), cat({x, counting({3})}, 0),
                cat({counting({}), counting({})}, 0), stack({x, x.slice(1, 0, 1)}), stack({x}, 3));
  EXPECT_THROW(cat({x, x.to(f32)}), DTypeError);
  if (device().is_cuda()) {
    EXPECT_THROW(cat({x, x.to(Device::cpu())}), DeviceError);
  }
}

TEST_P(Shaping, PadCountsFromTheLastDimension) {
  for (const DType dtype : {f32, f64, i64, u8}) {
    const Tensor x = make({1, 2, 3, 4}, {2, 2}, dtype);
    const Tensor y = pad(x, {1, 2, 1, 0}, 9);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.shape(), (Shape{3, 5}));
    EXPECT_EQ(values(y), (Doubles{9, 9, 9, 9, 9, 9, 1, 2, 9, 9, 9, 3, 4, 9, 9}));
    EXPECT_EQ(values(pad(x, {0, 1})), (Doubles{1, 2, 0, 3, 4, 0}));
    EXPECT_EQ(values(pad(x.transpose(0, 1), {0, 1})), (Doubles{1, 3, 0, 2, 4, 0}));
  }
  EXPECT_EQ(values(pad(make({1}, {1}, boolean), {1, 0}, true)), (Doubles{1, 1}));
  EXPECT_EQ(values(pad(counting({0, 2}), {0, 0, 1, 1}, 3)), (Doubles{3, 3, 3, 3}));
  const Tensor x = counting({2, 2}), same = pad(x, {});
  EXPECT_NE(same.impl()->storage, x.impl()->storage);
  EXPECT_EQ(values(same), values(x));
}

TEST_P(Shaping, PadAndTheGradientOfASliceWriteEveryElementOnce) {
  for (const DType dtype : {f32, bf16, u8}) {
    for (const int64_t columns : {1, 3, 16, 37, 130, 600}) {
      const Tensor x = whole({2, 3, columns}, on(dtype));
      for (const Tensor& view :
           {x, x.slice(2, columns / 2), x.permute({0, 2, 1}), x.expand({2, 3, columns})}) {
        Tensor expected = full({view.size(0) + 1, view.size(1) + 3, view.size(2) + 9}, 4, x.options());
        expected.slice(0, 1).slice(1, 2, 2 + view.size(1)).slice(2, 4, 4 + view.size(2)).copy_(view);
        EXPECT_TRUE(equal(pad(view, {4, 5, 2, 1, 1, 0}, 4), expected)) << dtype << columns;
      }
      if (!is_floating(dtype)) continue;
      for (const int64_t dim : {0, 1, 2}) {
        for (const int64_t step : {1, 2, 3, 7}) {
          const Tensor leaf = zeros(x.shape(), x.options()).set_requires_grad();
          const Tensor y = leaf.slice(dim, x.size(dim) / 2, {}, step), g = whole(y.shape(), x.options());
          Tensor expected = zeros(x.shape(), x.options());
          expected.slice(dim, x.size(dim) / 2, {}, step).copy_(g);
          const Tensor got = vox::grad({y}, {leaf}, {.grad_outputs = {g}})[0];
          EXPECT_TRUE(equal(got, expected)) << dtype << columns << " dim " << dim << " step " << step;
        }
      }
    }
  }
}

TEST_P(Shaping, PadRefuses) {
  const Tensor x = counting({2, 2});
  EXPECT_ERRORS(ValueError, pad({}, {1, 1}), pad(x, {-1, 0}), pad(x.to(u8), {1, 1}, 300),
                pad(x.to(i64), {1, 1}, 0.5));
  EXPECT_ERRORS(ShapeError, pad(x, {1}), pad(x, {1, 1, 1, 1, 1, 1}),
                pad(x, {std::numeric_limits<int64_t>::max(), 1}));
}

TEST_P(Shaping, IndexSelectTakesRows) {
  for (const DType dtype : dtypes) {
    const Tensor x = counting({2, 3, 2}, dtype);
    const Tensor y = index_select(x, 1, index({2, 0, 2, 1}));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.shape(), (Shape{2, 4, 2}));
    Doubles expected{4, 5, 0, 1, 4, 5, 2, 3, 10, 11, 6, 7, 10, 11, 8, 9};
    if (dtype == boolean)
      std::ranges::replace_if(
          expected, [](double v) { return v > 0; }, 1.0);
    EXPECT_EQ(values(y), expected) << dtype;
  }
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(index_select(x, -1, index({1}))), (Doubles{1, 4}));
  EXPECT_EQ(values(index_select(x.transpose(0, 1), 0, index({2, 1}))), (Doubles{2, 5, 1, 4}));
  EXPECT_EQ(values(index_select(x, 0, index({9, 1, 9, 0}).slice(0, 1, 4, 2))), (Doubles{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(values(index_select(x, 0, index({1}).expand({2}))), (Doubles{3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(index_select(x, 0, index({})).shape(), (Shape{0, 3}));
  EXPECT_EQ(index_select(counting({0, 3}), 1, index({0, 0})).shape(), (Shape{0, 2}));
}

// The last row's memory ends before its last stride does.
TEST_P(Shaping, IndexSelectReadsRowsInPlace) {
  const Tensor huge = counting({2, 1}).expand({2, int64_t{1} << 40});
  EXPECT_EQ(values(index_select(huge, 1, index({(int64_t{1} << 40) - 1}))), (Doubles{0, 1}));
}

TEST_P(Shaping, IndexSelectGradientAddsRowsInTheOrderOfTheIndices) {
  for (const DType dtype : {f32, f64}) {
    Tensor x = counting({2, 3}, dtype).set_requires_grad();
    index_select(x, 1, index({2, 0, 2})).backward(make({1, 2, 4, 8, 16, 32}, {2, 3}, dtype));
    EXPECT_EQ(values(x.grad()), (Doubles{2, 0, 5, 16, 0, 40}));
    x.zero_grad();
    index_select(x, 0, index({})).backward(make({}, {0, 3}, dtype));
    EXPECT_EQ(values(x.grad()), Doubles(6, 0.0));
  }
  // In f32, 1 is lost in 1e8 but 8 is not: only one order gives this.
  Tensor x = counting({2}, f32).set_requires_grad();
  index_select(x, 0, index({1, 1, 0, 1, 1})).backward(make({1e8, 1, 5, -1e8, 1}, {5}, f32));
  EXPECT_EQ(values(x.grad()), (Doubles{5, 1}));
}

TEST_P(Shaping, IndexSelectMatchesLoopsWhereManyThreadsShareTheWork) {
  const int64_t size = 1000, count = 3000, inner = 3;
  Ints picks;
  for (int64_t k = 0; k < count; ++k) picks.push_back(k * k * 7919 % size);
  Tensor x = counting({2, size, inner}).set_requires_grad();
  Tensor y = index_select(x, 1, index(picks));
  y.backward(counting(y.shape()));
  const Doubles in = values(x), out = values(y), grad = values(x.grad());
  Doubles expected(in.size());
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t k = 0; k < count; ++k)
      for (int64_t j = 0; j < inner; ++j) {
        const auto from = static_cast<size_t>((n * size + picks[static_cast<size_t>(k)]) * inner + j);
        const auto to = static_cast<size_t>((n * count + k) * inner + j);
        ASSERT_EQ(out[to], in[from]);
        expected[from] += static_cast<double>(to);
      }
  EXPECT_EQ(grad, expected);
}

TEST_P(Shaping, IndexSelectRefuses) {
  const Tensor x = counting({2, 3});
  EXPECT_ERRORS(ValueError, index_select({}, 0, index({0})), index_select(x, 0, {}));
  EXPECT_ERRORS(ShapeError, index_select(x, 2, index({0})), index_select(x, 0, index({0, 2})),
                index_select(x, 0, index({-1})),
                index_select(x, 0, index({std::numeric_limits<int64_t>::max()})),
                index_select(counting({0, 3}), 0, index({0})), index_select(x, 0, index({0, 1}).unsqueeze(0)),
                index_select(counting({}), 0, index({0})));
  EXPECT_THROW(index_select(x, 0, make({0}, {1})), DTypeError);
  const auto message = [&](const Tensor& t, int64_t dim, const Ints& picks) {
    return message_of<ShapeError>([&] { index_select(t, dim, index(picks)); });
  };
  EXPECT_EQ(message(x, 1, {0, 7}),
            "index_select: indices[1] is 7, outside a dimension of size 3; allowed are 0 to 2");
  EXPECT_EQ(message(counting({0, 3}), 0, {4}),
            "index_select: indices[0] is 4, but a dimension of size 0 has no index");
  if (device().is_cuda()) {
    EXPECT_THROW(index_select(x, 0, index({0}).to(Device::cpu())), DeviceError);
  }
}

// clone, contiguous, to(device), to(dtype): what they copy, what they share, which gradient they pass on.

DEVICE_SUITE(CopyTest);

TEST_P(CopyTest, CloneIsDenseAndSharesNothing) {
  const Tensor x = counting({2, 3}, i64);
  Tensor y = x.transpose(0, 1).clone();
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(y.to_vector<int64_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  y.fill_(7);
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(x.clone().to_vector<int64_t>(), x.to_vector<int64_t>());
}

TEST_P(CopyTest, ContiguousIsItselfIfDense) {
  const Tensor x = counting({2, 3, 4}, i64);
  EXPECT_EQ(x.contiguous().impl(), x.impl());
  const Tensor view = x.permute({2, 0, 1});
  const Tensor dense = view.contiguous();
  EXPECT_NE(dense.impl(), view.impl());
  EXPECT_TRUE(dense.is_contiguous());
  Ints expected;
  for (int64_t c = 0; c < 4; ++c)
    for (int64_t ab = 0; ab < 6; ++ab) expected.push_back(ab * 4 + c);
  EXPECT_EQ(dense.to_vector<int64_t>(), expected);
  EXPECT_EQ(x.slice(2, 1, 2).expand({2, 3, 2}).contiguous().to_vector<int64_t>(),
            (Ints{1, 1, 5, 5, 9, 9, 13, 13, 17, 17, 21, 21}));
  EXPECT_EQ(zeros({0, 3}, on(f32)).transpose(0, 1).clone().shape(), (Shape{3, 0}));
}

TEST_P(CopyTest, ATransposeWritesNothingBehindOddRows) {
  for (const DType dtype : {u8, bf16}) {
    for (const auto& [rows, columns] : {std::pair{64, 33}, std::pair{33, 64}}) {
      const Tensor x = randint(0, 100, {columns, 68}, on(dtype)).slice(1, 0, rows).transpose(0, 1);
      Tensor y = full({rows, 68}, 100, on(dtype));
      y.slice(1, 0, columns).copy_(x);
      EXPECT_EQ(y.slice(1, 0, columns).to(i64).to_vector<int64_t>(), x.to(i64).to_vector<int64_t>()) << dtype;
      EXPECT_TRUE(equal(y.slice(1, columns, 68), full({rows, 68 - columns}, 100, on(dtype)))) << dtype;
    }
  }
}

TEST_P(CopyTest, ToDevice) {
  const Tensor x = arange(0, 6, 1, {i64, Device::cpu()}).reshape({2, 3});
  const Tensor there = x.to(device());
  EXPECT_EQ(there.device(), device());
  EXPECT_EQ(there.to_vector<int64_t>(), x.to_vector<int64_t>());
  const Tensor view = x.transpose(0, 1).to(device());
  EXPECT_EQ(view.shape(), (Shape{3, 2}));
  EXPECT_EQ(view.to_vector<int64_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  const Tensor back = there.transpose(0, 1).to(Device::cpu());
  EXPECT_EQ(back.device(), Device::cpu());
  EXPECT_EQ(back.to_vector<int64_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(there.to(device()).impl(), there.impl());
  EXPECT_EQ(zeros({0}).to(device()).numel(), 0);
}

TEST_P(CopyTest, Conversions) {
  const auto limits = std::numeric_limits<int64_t>();
  const Tensor x = make({1.9, -1.9, 300, 0, nan, inf, -inf, 0.25}, {8});
  EXPECT_EQ(x.to(i64).to_vector<int64_t>(), (Ints{1, -1, 300, 0, 0, limits.max(), limits.min(), 0}));
  EXPECT_EQ(x.to(u8).to_vector<uint8_t>(), (Bytes{1, 0, 255, 0, 0, 255, 0, 0}));
  EXPECT_EQ(x.to(boolean).to_vector<bool>(), (Bools{true, true, true, false, true, true, true, true}));
  EXPECT_EQ(x.to(f32).to_vector<float>()[0], 1.9f);
  const Tensor big = from_vector<float>({9.3e18f, -9.3e18f, 1e30f}, {3}, device());
  EXPECT_EQ(big.to(i64).to_vector<int64_t>(), (Ints{limits.max(), limits.min(), limits.max()}));
  const Tensor n = ints({257, -1, 0}, {3});
  EXPECT_EQ(n.to(u8).to_vector<uint8_t>(), (Bytes{1, 255, 0}));
  EXPECT_EQ(n.to(boolean).to_vector<bool>(), (Bools{true, true, false}));
  EXPECT_EQ(n.to(f32).to_vector<float>(), (Floats{257, -1, 0}));
  const Tensor b = from_vector<bool>({true, false}, {2}, device());
  EXPECT_EQ(b.to(f64).to_vector<double>(), (Doubles{1, 0}));
  EXPECT_EQ(b.to(i64).to_vector<int64_t>(), (Ints{1, 0}));
  EXPECT_EQ(x.to(f64).impl(), x.impl());
}

TEST_P(CopyTest, GradientsFlowThrough) {
  Tensor x = make({1, 2, 3, 4}, {2, 2}).set_requires_grad(true);
  const Tensor w = make({1, 10, 100, 1000}, {2, 2});
  const auto gradient = [&](const Tensor& y) {
    return grad({y}, {x}, {.grad_outputs = {w.to(y.dtype()).to(y.device())}})[0];
  };
  EXPECT_EQ(gradient(x.clone()).to_vector<double>(), (Doubles{1, 10, 100, 1000}));
  EXPECT_EQ(gradient(x.transpose(0, 1).contiguous()).to_vector<double>(), (Doubles{1, 100, 10, 1000}));
  const Tensor dx = gradient(x.to(f32));
  EXPECT_EQ(dx.dtype(), f64);
  EXPECT_EQ(dx.to_vector<double>(), (Doubles{1, 10, 100, 1000}));
  EXPECT_FALSE(x.to(i64).requires_grad());
  const Tensor far = device().is_cuda() ? x.to(Device::cpu()) : x.to(device());
  const Tensor back = gradient(far);
  EXPECT_EQ(back.device(), device());
  EXPECT_EQ(back.to_vector<double>(), (Doubles{1, 10, 100, 1000}));
}

TEST_P(CopyTest, Undefined) {
  EXPECT_ERRORS(ValueError, Tensor().clone(), Tensor().contiguous(), Tensor().to(device()), Tensor().to(f64));
}

// Views: which elements they show, whose memory they share.

DEVICE_SUITE(Views);

TEST_P(Views, Slice) {
  const Tensor x = counting({2, 6});
  EXPECT_EQ(values(x.slice(1, 1, 5, 2)), (Doubles{1, 3, 7, 9}));
  EXPECT_EQ(values(x.slice(1, -2, 100)), (Doubles{4, 5, 10, 11}));
  EXPECT_EQ(x.slice(1, 4, 2).shape(), (Shape{2, 0}));
  EXPECT_EQ(values(x.slice(1, 1, {}, 2)), (Doubles{1, 3, 5, 7, 9, 11}));  // to the end
  EXPECT_EQ(x.slice(-2, 1, 2).shape(), (Shape{1, 6}));
  EXPECT_EQ(x.slice(1, 0, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()).shape(),
            (Shape{2, 1}));
  EXPECT_EQ(x.slice(1, 1, 2, 4).strides(), x.slice(1, 1, 2).strides());  // no step is taken
  EXPECT_THROW(x.slice(1, 0, 6, 0), ValueError);
  EXPECT_THROW(x.slice(2, 0, 1), ShapeError);
}

TEST_P(Views, SelectPermuteTranspose) {
  const Tensor x = counting({2, 3, 2});
  EXPECT_EQ(values(x.select(1, -1)), (Doubles{4, 5, 10, 11}));
  EXPECT_EQ(x.select(0, 1).shape(), (Shape{3, 2}));
  EXPECT_THROW(x.select(1, 3), ShapeError);
  EXPECT_EQ(values(x.permute({2, 0, 1})), (Doubles{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(values(x.transpose(0, -1)), values(x.permute({2, 1, 0})));
  EXPECT_ERRORS(ShapeError, x.permute({0, 1}), x.permute({0, 1, 1}));
}

TEST_P(Views, Expand) {
  const Tensor x = counting({2, 1});
  EXPECT_EQ(values(x.expand({2, 3})), (Doubles{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(x.expand({3, -1, 2}).shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(x.expand({2, 0}).numel(), 0);
  EXPECT_ERRORS(ShapeError, x.expand({3, 1}), x.expand({2}), x.expand({2, -2}));
}

TEST_P(Views, ReshapeSharesWhereItCan) {
  const Tensor x = counting({2, 3, 4});
  const auto shares = [](const Tensor& a, const Tensor& b) { return a.impl()->storage == b.impl()->storage; };
  EXPECT_TRUE(shares(x, x.reshape({6, -1})));
  EXPECT_TRUE(shares(x, x.slice(2, 0, 3).reshape({6, 3})));
  EXPECT_TRUE(shares(x, x.slice(0, 1, 2).reshape({3, 1, 4, 1})));
  EXPECT_TRUE(shares(x, x.permute({2, 0, 1}).reshape({4, 6})));
  EXPECT_FALSE(shares(x, x.permute({2, 0, 1}).reshape({8, 3})));
  EXPECT_EQ(values(x.permute({2, 0, 1}).reshape({4, 6})), values(x.permute({2, 0, 1}).clone()));
  EXPECT_EQ(values(x.slice(2, 1, 3).reshape({12})), values(x.slice(2, 1, 3).clone()));
  EXPECT_EQ(x.select(0, 0).select(0, 0).select(0, 0).reshape({1, 1}).shape(), (Shape{1, 1}));
  EXPECT_EQ(counting({0, 3}).reshape({3, 0, 5}).shape(), (Shape{3, 0, 5}));
  EXPECT_ERRORS(ShapeError, x.reshape({5, -1}), x.reshape({-1, -1}), x.reshape({25}),
                counting({0, 3}).reshape({0, -1}));
}

TEST_P(Views, SqueezeUnsqueezeFlatten) {
  const Tensor x = counting({2, 1, 3});
  EXPECT_EQ(x.squeeze(1).shape(), (Shape{2, 3}));
  EXPECT_EQ(counting({1, 3, 1}).squeeze(-1).shape(), (Shape{1, 3}));
  EXPECT_EQ(counting({1, 3, 1}).squeeze().shape(), (Shape{3}));
  EXPECT_EQ(x.squeeze(0).shape(), x.shape()) << "as in PyTorch";
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{2, 1, 3, 1}));
  EXPECT_EQ(x.transpose(0, 2).unsqueeze(1).squeeze(1).strides(), x.transpose(0, 2).strides());
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 3}));
  EXPECT_EQ(x.flatten().shape(), (Shape{6}));
  EXPECT_EQ(x.select(0, 0).select(0, 0).select(0, 0).flatten().shape(), (Shape{1}));
  EXPECT_THROW(x.flatten(2, 1), ShapeError);
}

TEST_P(Views, WritesGoThrough) {
  Tensor x = counting({2, 3});
  x.slice(1, 1, 2).fill_(100);
  x.transpose(0, 1).select(0, 0).zero_();
  EXPECT_EQ(values(x), (Doubles{0, 100, 2, 0, 100, 5}));
}

}  // namespace
}  // namespace vox

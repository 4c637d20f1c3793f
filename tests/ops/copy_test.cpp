#include "tests/support/test.h"

// clone, contiguous, to(device), to(dtype): what they copy, what they share, which gradient they pass on.

namespace vox {
namespace {

class CopyTest : public DeviceTest {
 protected:
  Tensor counting(const Shape& shape) {
    return arange(0, checked_numel("test", shape), 1, {i64, device()}).reshape(shape);
  }
};
INSTANTIATE_TEST_SUITE_P(, CopyTest, devices(), device_name);

TEST_P(CopyTest, CloneIsDenseAndSharesNothing) {
  const Tensor x = counting({2, 3});
  Tensor y = x.transpose(0, 1).clone();
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(y.to_vector<int64_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  y.fill_(7);
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(x.clone().to_vector<int64_t>(), x.to_vector<int64_t>());
}

TEST_P(CopyTest, ContiguousIsItselfIfDense) {
  const Tensor x = counting({2, 3, 4});
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
  EXPECT_EQ(zeros({0, 3}, {f32, device()}).transpose(0, 1).clone().shape(), (Shape{3, 0}));
}

TEST_P(CopyTest, EightDimensionsAndAllElementSizes) {
  const Shape shape{2, 1, 3, 2, 1, 2, 3, 2};
  const Tensor x = counting(shape);
  const Shape order{7, 3, 5, 1, 0, 6, 4, 2};
  const auto expected = x.permute(order).to_vector<int64_t>();
  for (DType dtype : {f32, f64, u8}) {
    const Tensor y = x.to(dtype).permute(order).contiguous();
    EXPECT_EQ(y.to(i64).to_vector<int64_t>(), expected) << dtype;
  }
  const Tensor odd = ne(x - (x.to(f64) / 2).to(i64) * 2, 0).permute(order);
  const auto bits = odd.contiguous().to_vector<bool>();
  for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(bits[i], expected[i] % 2 == 1) << i;
}

TEST_P(CopyTest, TransposesAndSlicesOfManySizes) {
  for (const Shape& shape : {Shape{2, 64, 128}, Shape{3, 65, 33}, Shape{1, 130, 8}, Shape{2, 32, 1000},
                             Shape{1, 5, 700}, Shape{2, 7, 1}}) {
    const Tensor numbers = counting(shape);
    for (const DType dtype : {u8, bf16, f32, f64}) {
      const Tensor x = numbers.to(dtype);
      const auto expect = [&](const Tensor& view, auto element) {  // element(n, i, j) of the shape of `view`
        const Tensor dense = view.contiguous();
        const auto got = dense.to(f64).to_vector<double>(), all = x.to(f64).to_vector<double>();
        const Shape& s = view.shape();
        size_t at = 0;
        for (int64_t n = 0; n < s[0]; ++n)
          for (int64_t i = 0; i < s[1]; ++i)
            for (int64_t j = 0; j < s[2]; ++j, ++at)
              ASSERT_EQ(got[at], all[static_cast<size_t>(element(n, i, j))]) << s << dtype << " at " << at;
      };
      const int64_t rows = shape[1], columns = shape[2], plane = rows * columns;
      const auto transposed = [=](int64_t n, int64_t i, int64_t j) { return n * plane + j * columns + i; };
      expect(x.transpose(1, 2), transposed);
      expect(x.slice(1, 1).transpose(1, 2),
             [=](int64_t n, int64_t i, int64_t j) { return transposed(n, i, j + 1); });
      expect(x.transpose(0, 2), [=](int64_t n, int64_t i, int64_t j) { return j * plane + i * columns + n; });
      expect(x.slice(2, 1, {}, 2),
             [=](int64_t n, int64_t i, int64_t j) { return n * plane + i * columns + 2 * j + 1; });
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
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Tensor x = from_vector<double>({1.9, -1.9, 300, 0, nan, inf, -inf, 0.25}, {8}, device());
  EXPECT_EQ(x.to(i64).to_vector<int64_t>(), (Ints{1, -1, 300, 0, 0, limits.max(), limits.min(), 0}));
  EXPECT_EQ(x.to(u8).to_vector<uint8_t>(), (Bytes{1, 0, 255, 0, 0, 255, 0, 0}));
  EXPECT_EQ(x.to(boolean).to_vector<bool>(), (Bools{true, true, true, false, true, true, true, true}));
  EXPECT_EQ(x.to(f32).to_vector<float>()[0], 1.9f);
  const Tensor big = from_vector<float>({9.3e18f, -9.3e18f, 1e30f}, {3}, device());
  EXPECT_EQ(big.to(i64).to_vector<int64_t>(), (Ints{limits.max(), limits.min(), limits.max()}));
  const Tensor n = from_vector<int64_t>({257, -1, 0}, {3}, device());
  EXPECT_EQ(n.to(u8).to_vector<uint8_t>(), (Bytes{1, 255, 0}));
  EXPECT_EQ(n.to(boolean).to_vector<bool>(), (Bools{true, true, false}));
  EXPECT_EQ(n.to(f32).to_vector<float>(), (Floats{257, -1, 0}));
  const Tensor b = from_vector<bool>({true, false}, {2}, device());
  EXPECT_EQ(b.to(f64).to_vector<double>(), (Doubles{1, 0}));
  EXPECT_EQ(b.to(i64).to_vector<int64_t>(), (Ints{1, 0}));
  EXPECT_EQ(x.to(f64).impl(), x.impl());
}

TEST_P(CopyTest, GradientsFlowThrough) {
  Tensor x = from_vector<double>({1, 2, 3, 4}, {2, 2}, device()).set_requires_grad(true);
  const Tensor w = from_vector<double>({1, 10, 100, 1000}, {2, 2}, device());
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

}  // namespace
}  // namespace vox

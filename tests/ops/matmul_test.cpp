#include "tests/support/test.h"

namespace vox {
namespace {

DEVICE_SUITE(MatmulTest);

/// The definition, for operands of rank >= 2 with batches expanded to `batch`.
Tensor reference(const Tensor& a, const Tensor& b, const Shape& batch) {
  const int64_t n = a.size(-2), k = a.size(-1), m = b.size(-1);
  Shape a_shape = batch, b_shape = batch, y_shape = batch;
  a_shape.push_back(n), a_shape.push_back(k);
  b_shape.push_back(k), b_shape.push_back(m);
  y_shape.push_back(n), y_shape.push_back(m);
  const auto x = a.to(f64).expand(a_shape).to_vector<double>();
  const auto w = b.to(f64).expand(b_shape).to_vector<double>();
  Doubles y(static_cast<size_t>(checked_numel("reference", y_shape)));
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) % m, row = static_cast<int64_t>(i) / m % n;
    const int64_t p = static_cast<int64_t>(i) / m / n;
    for (int64_t c = 0; c < k; ++c)
      y[i] +=
          x[static_cast<size_t>((p * n + row) * k + c)] * w[static_cast<size_t>((p * k + c) * m + column)];
  }
  return from_vector<double>(y, y_shape);
}

TEST_P(MatmulTest, ExactOnWholeNumbersForEveryRank) {
  struct Case {
    Shape a, b, batch, y;
  };
  const Case cases[] = {
      {{3, 4}, {4, 5}, {}, {3, 5}},
      {{1, 1}, {1, 1}, {}, {1, 1}},
      {{4}, {4}, {}, {}},
      {{4}, {4, 5}, {}, {5}},
      {{3, 4}, {4}, {}, {3}},
      {{2, 3, 4}, {4, 5}, {2}, {2, 3, 5}},
      {{3, 4}, {2, 4, 5}, {2}, {2, 3, 5}},
      {{4}, {2, 4, 5}, {2}, {2, 5}},
      {{2, 3, 4}, {4}, {2}, {2, 3}},
      {{2, 1, 3, 4}, {6, 4, 5}, {2, 6}, {2, 6, 3, 5}},
      {{130, 70}, {70, 520}, {}, {130, 520}},
      {{3, 65, 17}, {3, 17, 65}, {3}, {3, 65, 65}},
      {{1, 1000}, {1000, 3}, {}, {1, 3}},
      {{0, 4}, {4, 5}, {}, {0, 5}},
      {{3, 0}, {0, 5}, {}, {3, 5}},
      {{3, 4}, {4, 0}, {}, {3, 0}},
      {{0}, {0}, {}, {}},
      {{0, 3, 4}, {4, 5}, {0}, {0, 3, 5}},
  };
  for (const Case& c : cases) {
    for (DType dtype : {f32, f64}) {
      const Tensor a = whole(c.a, on(dtype)), b = whole(c.b, on(dtype), 3);
      const Tensor y = matmul(a, b);
      EXPECT_EQ(y.shape(), c.y);
      const Tensor expected =
          reference(a.rank() == 1 ? a.unsqueeze(0) : a, b.rank() == 1 ? b.unsqueeze(1) : b, c.batch);
      EXPECT_EQ(y.to(f64).to_vector<double>(), expected.to_vector<double>()) << c.a << c.b << dtype;
    }
  }
}

TEST_P(MatmulTest, NonFiniteNumbersStayInTheirRowAndColumn) {
  for (double bad : {nan, inf}) {
    Tensor a = full({67, 33}, 1, on(f32)), b = full({33, 70}, 1, on(f32));
    a.slice(0, 66, 67).slice(1, 32, 33).fill_(bad);
    const auto y = matmul(a, b).to_vector<float>();
    for (size_t i = 0; i < y.size(); ++i) {
      if (i / 70 < 66)
        EXPECT_EQ(y[i], 33) << i;
      else
        EXPECT_TRUE(std::isnan(bad) ? std::isnan(y[i]) : std::isinf(y[i])) << i;
    }
    b.slice(0, 32, 33).slice(1, 69, 70).fill_(0);  // 0 * inf
    EXPECT_TRUE(std::isnan(matmul(a, b).to_vector<float>().back()));
  }
}

TEST_P(MatmulTest, AViewHasTheBitsOfItsCopy) {
  const auto check = [](const Tensor& a, const Tensor& b) {
    EXPECT_TRUE(same_bits(matmul(a, b), matmul(copy_of(a), copy_of(b)))) << a.shape() << b.shape();
  };
  for (DType dtype : {f32, f64}) {
    const Tensor x = normal({4, 133, 71}, on(dtype)), w = normal({4, 71, 90}, on(dtype), 2);
    check(x.select(0, 1), w.select(0, 2));
    check(w.transpose(1, 2), x.transpose(1, 2));
    check(x.slice(1, 0, 133, 3), w.slice(2, 1, 80, 2));
    check(x.slice(0, 0, 1).expand({4, 133, 71}), w);
    check(x, w.select(0, 3));
    check(x.permute({1, 0, 2}).slice(2, 0, 4), w.slice(1, 3, 7).select(0, 0));
    const Tensor v = normal({1010}, on(dtype), 3);
    for (int64_t length : {3, 16, 500}) {  // not aligned, and so short that Eigen takes other paths
      const Tensor part = v.slice(0, 1, 1 + length);
      check(part, part);
      check(part, v.slice(0, 3, 3 + length * 2).reshape({length, 2}));
      check(v.slice(0, 5, 5 + length * 2).reshape({2, length}), part);
    }
  }
}

TEST_P(MatmulTest, ThreadsDoNotChangeBits) {
  if (device().is_cuda()) GTEST_SKIP() << "CPU threads";
  const Tensor a = normal({2, 300, 65}, on(f32)), b = normal({65, 1100}, on(f32), 2);
  EXPECT_TRUE(same_on_any_threads([&] { return matmul(a, b); }));
}

TEST_P(MatmulTest, Errors) {
  const Tensor a = whole({2, 3}, on(f32));
  EXPECT_REFUSED(ShapeError, matmul(a, a), "(2,3) and (2,3)");
  EXPECT_ERRORS(ShapeError, matmul(a, whole({2}, on(f32))), matmul(a, full({}, 1, on(f32))),
                matmul(whole({2, 2, 3}, on(f32)), whole({3, 3, 2}, on(f32))));
  EXPECT_THROW(matmul(a, whole({3, 2}, on(f64))), DTypeError);
  EXPECT_THROW(matmul(a, Tensor()), ValueError);
}

using enum Float32Precision;

class PrecisionTest : public ::testing::Test {
 protected:
  void TearDown() override { set_float32_precision(highest); }
};

Float32Precision seen_by_another_thread() {
  Float32Precision seen{};
  std::thread([&] { seen = float32_precision(); }).join();
  return seen;
}

TEST_F(PrecisionTest, IsHighestUntilSet) {
  EXPECT_EQ(float32_precision(), highest);
  set_float32_precision(medium);
  EXPECT_EQ(float32_precision(), medium);
  EXPECT_EQ(seen_by_another_thread(), medium);
}

TEST_F(PrecisionTest, GuardsNestAndRestore) {
  {
    const PrecisionGuard outer(high);
    EXPECT_EQ(float32_precision(), high);
    {
      const PrecisionGuard inner(highest);
      EXPECT_EQ(float32_precision(), highest);
    }
    EXPECT_EQ(float32_precision(), high);
  }
  EXPECT_EQ(float32_precision(), highest);
  EXPECT_THROW(
      {
        const PrecisionGuard guard(high);
        throw Error("out of the scope");
      },
      Error);
  EXPECT_EQ(float32_precision(), highest);
  const PrecisionGuard guard(high);
  EXPECT_EQ(seen_by_another_thread(), highest);
}

TEST_F(PrecisionTest, AGuardOutranksTheProcessAndDoesNotHideItAfterwards) {
  {
    const PrecisionGuard guard(high);
    set_float32_precision(medium);
    EXPECT_EQ(float32_precision(), high);
    EXPECT_EQ(seen_by_another_thread(), medium);
  }
  EXPECT_EQ(float32_precision(), medium);
}

}  // namespace
}  // namespace vox

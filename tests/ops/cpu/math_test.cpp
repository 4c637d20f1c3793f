#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/elementwise.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/walk.h>

#include "tests/support/test.h"

// The elementwise kernels of each instruction set: their accuracy against long double, special values, and
// that an element's bits depend only on its operands.

namespace vox::cpu {
namespace {

constexpr ByIsa kernels = VOX_BY_ISA(elementwise_kernels);

class MathTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!has_isa(GetParam())) GTEST_SKIP() << "not on this processor";
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(before_); }

 private:
  Isa before_ = isa();
};
INSTANTIATE_TEST_SUITE_P(, MathTest, ::testing::Values(Isa::baseline, Isa::v3, Isa::v4),
                         [](const auto& info) { return to_string(info.param); });

template <class T>
std::vector<T> run(Unary op, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  kernels.of<T>().unary[static_cast<int>(op)](x.data(), y.data(), static_cast<int64_t>(x.size()), T(0.125),
                                              T(2), false);
  return y;
}

struct Accuracy {
  const char* name;
  Unary op;
  long double (*reference)(long double);
  double low, high;  // of f32
  double bound;      // in ulp
  bool f64;          // f64 also uses our function, not libm's
};

const Accuracy accuracies[] = {
    {"exp", Unary::exp, [](long double x) { return std::exp(x); }, -103.5, 88.7, 1.02, true},
    {"log", Unary::log, [](long double x) { return std::log(x); }, 0, 1e4, 1, true},
    {"log near 1", Unary::log, [](long double x) { return std::log(x); }, 0.5, 2, 1, true},
    {"log of denormals", Unary::log, [](long double x) { return std::log(x); }, 0, 1e-37, 1, true},
    {"tanh", Unary::tanh, [](long double x) { return std::tanh(x); }, -10, 10, 2.5, true},
    {"tanh near 0", Unary::tanh, [](long double x) { return std::tanh(x); }, -1e-3, 1e-3, 2.5, true},
    {"sigmoid", Unary::sigmoid, [](long double x) { return 1 / (1 + std::exp(-x)); }, -87, 40, 3, true},
    {"silu", Unary::silu, [](long double x) { return x / (1 + std::exp(-x)); }, -82, 40, 3, true},
    {"erf", Unary::erf, [](long double x) { return std::erf(x); }, -5, 5, 0.52, false},
    {"erf near 0", Unary::erf, [](long double x) { return std::erf(x); }, -1e-3, 1e-3, 0.52, false},
    {"gelu", Unary::gelu, [](long double x) { return x * std::erfc(-x / std::sqrt(2.0L)) / 2; }, -13, 9, 0.52,
     false},
    {"mish", Unary::mish, [](long double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -82, 40, 4,
     true},
    {"rsqrt", Unary::rsqrt, [](long double x) { return 1 / std::sqrt(x); }, 0, 100, 1.5, true},
};

template <class T>
void check_accuracy() {
  std::mt19937_64 engine(1);
  for (const Accuracy& a : accuracies) {
    if (sizeof(T) == 8 && !a.f64) continue;
    std::uniform_real_distribution<double> uniform(a.low, a.high);
    std::vector<T> x(100'000);
    for (T& v : x) v = static_cast<T>(uniform(engine));
    const std::vector<T> y = run(a.op, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], a.reference(x[i])));
    EXPECT_LE(worst, a.bound) << a.name << (sizeof(T) == 4 ? " f32" : " f64");
  }
}

TEST_P(MathTest, IsAsAccurateAsMathSays) { check_accuracy<float>(), check_accuracy<double>(); }

TEST_P(MathTest, ExpReachesDenormalsAndBothEnds) {
  EXPECT_LE(ulps(run<float>(Unary::exp, {-100})[0], std::exp(-100.0L)), 1);
  EXPECT_LE(ulps(run<double>(Unary::exp, {-744})[0], std::exp(-744.0L)), 1);
  EXPECT_LE(ulps(run<double>(Unary::exp, {709.5})[0], std::exp(709.5L)), 1);
  EXPECT_EQ(run<float>(Unary::exp, {-104, 88.8f, -1e30f, 1e30f}),
            (Floats{0, std::numeric_limits<float>::infinity(), 0, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(run<double>(Unary::exp, {-746, 710, 0}), (Doubles{0, inf, 1}));
}

template <class T>
void check_special_values() {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  constexpr T tiny = std::numeric_limits<T>::denorm_min();
  const auto at = [](Unary op, T x) { return run<T>(op, std::vector<T>(17, x))[16]; };
  for (int op = 0; op < unary_count; ++op) EXPECT_TRUE(std::isnan(at(Unary(op), nan))) << op;
  EXPECT_EQ(at(Unary::exp, -inf), 0);
  EXPECT_EQ(at(Unary::exp, inf), inf);
  EXPECT_EQ(at(Unary::log, 0), -inf);
  EXPECT_EQ(at(Unary::log, T(-0.0)), -inf);
  EXPECT_EQ(at(Unary::log, inf), inf);
  EXPECT_EQ(at(Unary::log, 1), 0);
  EXPECT_TRUE(std::isnan(at(Unary::log, -1)));
  EXPECT_TRUE(std::isnan(at(Unary::log, -inf)));
  EXPECT_LE(ulps(at(Unary::log, tiny), std::log(static_cast<long double>(tiny))), 1);
  for (const Unary op : {Unary::tanh, Unary::erf}) {
    EXPECT_EQ(at(op, inf), 1);
    EXPECT_EQ(at(op, -inf), -1);
    EXPECT_TRUE(std::signbit(at(op, T(-0.0))));
  }
  EXPECT_EQ(at(Unary::tanh, tiny), tiny);
  EXPECT_EQ(at(Unary::sigmoid, -inf), 0);
  EXPECT_EQ(at(Unary::sigmoid, inf), 1);
  EXPECT_EQ(at(Unary::sigmoid, 0), T(0.5));
  EXPECT_EQ(at(Unary::silu, inf), inf);
  EXPECT_TRUE(std::isnan(at(Unary::silu, -inf)));
  EXPECT_TRUE(std::isnan(at(Unary::gelu, -inf)));
  EXPECT_EQ(at(Unary::gelu, inf), inf);
  EXPECT_TRUE(std::signbit(at(Unary::relu, T(-0.0))));
}

TEST_P(MathTest, SpecialValues) { check_special_values<float>(), check_special_values<double>(); }

TEST_P(MathTest, PowersAreLibmsAtTheEdgesAndRoundedOnceElsewhere) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Floats edges = {0, -0.f, 1, -1, 2, -2, 0.5f, 3, inf, -inf, nan, 1e-40f, 1e38f, -7.5f};
  Floats a, b;
  for (const float l : edges) {
    for (const float r : edges) a.push_back(l), b.push_back(r);
  }
  for (int i = 1; i <= 2000; ++i)
    a.push_back(static_cast<float>(i) * 0.013f), b.push_back(static_cast<float>(i % 61) - 30.3f);
  Floats y(a.size());
  kernels.of<float>().binary[static_cast<int>(Binary::pow)](a.data(), 1, b.data(), 1, y.data(),
                                                            static_cast<int64_t>(a.size()), 0, 0, false);
  for (size_t i = 0; i < a.size(); ++i) {
    const double expected = std::pow(static_cast<double>(a[i]), static_cast<double>(b[i]));
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(y[i])) << a[i] << "^" << b[i];
    else
      EXPECT_LE(ulps(y[i], expected), 0.51) << a[i] << "^" << b[i];
  }
}

/// Runs of every length from every start, bypassing the cache or not, have the bits of one long run.
template <class T>
void check_same_bits() {
  constexpr int64_t most = 300;
  std::vector<T> a(most), b(most);
  for (int64_t i = 0; i < most; ++i) {
    a[static_cast<size_t>(i)] = static_cast<T>(0.037 * static_cast<double>(i) - 4.1);
    b[static_cast<size_t>(i)] = static_cast<T>(7.9 - 0.0513 * static_cast<double>(i));
  }
  const auto expect_same = [&](const std::vector<T>& whole, const T* part, int64_t first, int64_t n, int op) {
    EXPECT_EQ(std::memcmp(whole.data() + first, part, static_cast<size_t>(n) * sizeof(T)), 0)
        << "op " << op << " from " << first << ", length " << n;
  };
  alignas(64) T y[most + 16];
  for (const bool stream : {false, true}) {
    for (int op = 0; op < 2 * unary_count + binary_count; ++op) {
      const int other = op - unary_count, gradient = other - binary_count;
      if (gradient >= 0 && !has_gradient(Unary(gradient))) continue;
      const auto go = [&](int64_t first, int64_t n, T* to) {
        const T *l = a.data() + first, *r = b.data() + first;
        if (other < 0)
          kernels.of<T>().unary[op](l, to, n, T(0.125), T(2), stream);
        else if (gradient < 0)
          kernels.of<T>().binary[other](l, 1, r, 1, to, n, T(0.3), T(2), stream);
        else
          kernels.of<T>().gradient[gradient](l, 1, r, 1, to, n, T(0.125), T(2), stream);
      };
      std::vector<T> whole(most);
      go(0, most, whole.data());
      for (const int64_t first : {0, 1, 3, 8, 13}) {
        for (int64_t n = 1; n + first <= most; n += n < 70 ? 1 : 53) {
          T* const to = y + (n + first) % 16;  // any alignment
          go(first, n, to);
          finish_streaming();
          expect_same(whole, to, first, n, op);
        }
      }
    }
  }
}

TEST_P(MathTest, WhereAnElementLiesDoesNotChangeItsBits) {
  check_same_bits<float>(), check_same_bits<double>();
}

constexpr Isa all[] = {Isa::baseline, Isa::v3, Isa::v4};

class IsaTest : public ::testing::Test {
 protected:
  ~IsaTest() override { set_isa(before_); }

 private:
  Isa before_ = isa();
};

TEST_F(IsaTest, BaselineIsEverywhereAndOthersAreRefusedWhereTheyAreNot) {
  EXPECT_TRUE(has_isa(Isa::baseline));
  for (const Isa i : all) {
    if (has_isa(i)) {
      set_isa(i);
      EXPECT_EQ(isa(), i);
    } else {
      EXPECT_THROW(set_isa(i), ValueError);
    }
  }
}

TEST_F(IsaTest, LevelsAreNested) { EXPECT_LE(has_isa(Isa::v4), has_isa(Isa::v3)); }

#if VOXGRAD_X86_ISAS
TEST_F(IsaTest, TablesAreOfTheChosenSet) {
  constexpr ByIsa kernels{&simd::baseline::finite_kernels, &simd::v3::finite_kernels,
                          &simd::v4::finite_kernels};
  const void* expected[] = {&simd::baseline::finite_kernels, &simd::v3::finite_kernels,
                            &simd::v4::finite_kernels};
  for (const Isa i : all) {
    if (!has_isa(i)) continue;
    set_isa(i);
    EXPECT_EQ(&kernels.here(), expected[static_cast<int>(i)]);
  }
}
#endif

TEST_F(IsaTest, TheEnvironmentForcesOne) {
  const char* before = std::getenv("VOXGRAD_CPU_ISA");
  const std::string saved = before ? before : "";
  for (const Isa i : all) {
    ::setenv("VOXGRAD_CPU_ISA", to_string(i), 1);
    if (has_isa(i))
      EXPECT_EQ(isa_from_environment(), i);
    else
      EXPECT_THROW(isa_from_environment(), ValueError);
  }
  for (const char* wrong : {"", "v5", "V4", "avx2"}) {
    ::setenv("VOXGRAD_CPU_ISA", wrong, 1);
    EXPECT_THROW(isa_from_environment(), ValueError) << wrong;
  }
  if (before)
    ::setenv("VOXGRAD_CPU_ISA", saved.c_str(), 1);
  else
    ::unsetenv("VOXGRAD_CPU_ISA");
}

template <class T>
void expect_finite_is_right(bool (*all_finite)(const T*, int64_t)) {
  for (int64_t n = 0; n < 200; ++n) {
    std::vector<T> x(static_cast<size_t>(n), T(-3e30));
    EXPECT_TRUE(all_finite(x.data(), n)) << n;
    for (const T bad : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                        std::numeric_limits<T>::quiet_NaN()}) {
      for (T& element : x) {
        element = bad;
        EXPECT_FALSE(all_finite(x.data(), n)) << n;
        element = std::numeric_limits<T>::max();
      }
    }
    EXPECT_TRUE(all_finite(x.data(), n)) << n;
  }
}

TEST_F(IsaTest, AllFinite) {
  constexpr ByIsa kernels = VOX_BY_ISA(finite_kernels);
  for (const Isa i : all) {
    if (!has_isa(i)) continue;
    SCOPED_TRACE(to_string(i));
    set_isa(i);
    expect_finite_is_right(kernels.here().f32);
    expect_finite_is_right(kernels.here().f64);
  }
}

}  // namespace
}  // namespace vox::cpu

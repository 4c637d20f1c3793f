#include "tests/support/test.h"

// Conversions against rules written out here: the value of every pattern, and, for numbers that are rounded
// to 16 bits, the nearest of the two neighbours in the table of all values.

namespace vox {
namespace {

/// Bits of exponent and of fraction.
template <class T>
struct Format;
template <>
struct Format<bfloat16> {
  static constexpr int exponent = 8, fraction = 7;
};
template <>
struct Format<float16> {
  static constexpr int exponent = 5, fraction = 10;
};

/// The number that a pattern represents, by IEEE 754's definition.
template <class T>
double value_of(uint16_t bits) {
  using F = Format<T>;
  const int bias = (1 << (F::exponent - 1)) - 1, top = (1 << F::exponent) - 1;
  const int e = bits >> F::fraction & top, f = bits & ((1 << F::fraction) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (e == top) return f ? nan : sign * inf;
  if (e == 0) return sign * std::ldexp(f, 1 - bias - F::fraction);
  return sign * std::ldexp((1 << F::fraction) + f, e - bias - F::fraction);
}

template <class T>
constexpr uint16_t infinity_bits = static_cast<uint16_t>(((1 << Format<T>::exponent) - 1)
                                                         << Format<T>::fraction);

/// The pattern that a finite x >= 0 rounds to, found in the table: the patterns of positive numbers rise with
/// their values, and infinity counts as 2^emax + 1.
template <class T>
uint16_t nearest(double x) {
  uint16_t low = 0, high = infinity_bits<T>;
  const double beyond = std::ldexp(1, 1 << (Format<T>::exponent - 1));  // what infinity counts as
  const auto at = [&](uint16_t bits) { return bits == infinity_bits<T> ? beyond : value_of<T>(bits); };
  if (x >= beyond) return high;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (at(middle) <= x ? low : high) = middle;
  }
  const double below = x - at(low), above = at(high) - x;  // exact: neighbours in a short format
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

template <class T>
class HalfTest : public ::testing::Test {};
using HalfTypes = ::testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(HalfTest, HalfTypes);

TYPED_TEST(HalfTest, EveryPatternHasItsValueAndComesBack) {
  using T = TypeParam;
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const T x = T::from_bits(bits);
    const double expected = value_of<T>(bits), got = static_cast<float>(x);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << i;
      ASSERT_EQ(T(got).bits, 0x7fff) << i;
      ASSERT_EQ(T(static_cast<float>(x)).bits, 0x7fff) << i;
    } else {
      ASSERT_EQ(got, expected) << i;
      ASSERT_EQ(std::signbit(got), std::signbit(expected)) << i;
      ASSERT_EQ(T(got).bits, bits) << i;
      ASSERT_EQ(T(static_cast<float>(x)).bits, bits) << i;
    }
  }
}

TYPED_TEST(HalfTest, TiesAndTheirNeighboursBetweenAllNumbers) {
  using T = TypeParam;
  for (int i = 0; i < infinity_bits<T>; ++i) {
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const double a = value_of<T>(low);
    const double b =
        high == infinity_bits<T> ? 2 * a - value_of<T>(static_cast<uint16_t>(i - 1)) : value_of<T>(high);
    const double tie = (a + b) / 2;
    const uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(T(tie).bits, even) << i;
    ASSERT_EQ(T(-tie).bits, even | 0x8000) << i;
    ASSERT_EQ(T(std::nextafter(tie, 0)).bits, low) << i;  // in double: a float would be the tie itself
    ASSERT_EQ(T(std::nextafter(tie, inf)).bits, high) << i;
    const auto tie32 = static_cast<float>(tie);
    ASSERT_EQ(static_cast<double>(tie32), tie) << i;  // every tie is a float
    ASSERT_EQ(T(tie32).bits, even) << i;
    ASSERT_EQ(T(std::nextafter(tie32, 0.f)).bits, low) << i;
    ASSERT_EQ(T(std::nextafter(tie32, 1e38f * 10)).bits, high) << i;
    ASSERT_EQ(T(static_cast<float>(a + (b - a) / 4)).bits, low) << i;
  }
}

TYPED_TEST(HalfTest, FloatsOfAllMagnitudesRoundToTheNearest) {
  using T = TypeParam;
  uint32_t state = 12345;
  for (int i = 0; i < 400000; ++i) {
    state = state * 1664525 + 1013904223;
    float x;
    std::memcpy(&x, &state, 4);
    if (!std::isfinite(x)) continue;
    const auto expected =
        static_cast<uint16_t>(nearest<T>(std::abs(static_cast<double>(x))) | (state >> 31 << 15));
    ASSERT_EQ(T(x).bits, expected) << x;
    ASSERT_EQ(T(static_cast<double>(x)).bits, expected) << x;
  }
}

TYPED_TEST(HalfTest, OverflowUnderflowAndSpecials) {
  using T = TypeParam;
  const uint16_t infinity = infinity_bits<T>;
  for (const double huge : {1e39, 1e300, inf, 0x1p128, 0x1.ffffffp127}) {
    EXPECT_EQ(T(huge).bits, infinity) << huge;
    EXPECT_EQ(T(-huge).bits, infinity | 0x8000) << huge;
    EXPECT_EQ(T(static_cast<float>(huge)).bits, infinity) << huge;
  }
  for (const double tiny : {1e-46, 1e-300, 0., 0x1p-149}) {
    EXPECT_EQ(T(tiny).bits, 0) << tiny;
    EXPECT_EQ(T(-tiny).bits, 0x8000) << tiny;
    EXPECT_EQ(T(static_cast<float>(-tiny)).bits, 0x8000) << tiny;
  }
  EXPECT_EQ(T(nan).bits, 0x7fff);
  EXPECT_EQ(T(-nan).bits, 0x7fff);
  EXPECT_EQ(T(std::numeric_limits<float>::signaling_NaN()).bits, 0x7fff);
}

TYPED_TEST(HalfTest, IntegersRoundOnce) {
  using T = TypeParam;
  for (int64_t i = -70000; i <= 70000; i += 7) {
    const auto expected =
        static_cast<uint16_t>(nearest<T>(std::abs(static_cast<double>(i))) | (i < 0 ? 0x8000 : 0));
    ASSERT_EQ(T(i).bits, expected) << i;
    ASSERT_EQ(T(static_cast<int>(i)).bits, expected) << i;
    ASSERT_EQ(T(static_cast<float>(i)).bits, expected) << i;
  }
  EXPECT_EQ(T(true).bits, T(1).bits);
  EXPECT_EQ(T(uint8_t{255}).bits, T(255).bits);
}

TEST(Half, WideNumbersDoNotRoundTwice) {
  // Above a tie of bfloat16 by less than double, and then float, can represent.
  const int64_t tie = (int64_t{1} << 62) + (int64_t{1} << 54);
  EXPECT_EQ(bfloat16(tie).bits, 0x5e80);
  EXPECT_EQ(bfloat16(tie + 1).bits, 0x5e81);
  EXPECT_EQ(bfloat16(tie - 1).bits, 0x5e80);
  EXPECT_EQ(bfloat16(-tie - 1).bits, 0xde81);
  EXPECT_EQ(bfloat16(-tie + 1).bits, 0xde80);
  EXPECT_EQ(bfloat16(tie + (int64_t{1} << 55) - 1).bits, 0x5e81);
  EXPECT_EQ(bfloat16(std::numeric_limits<int64_t>::max()).bits, 0x5f00);
  EXPECT_EQ(bfloat16(std::numeric_limits<int64_t>::min()).bits, 0xdf00);
  EXPECT_EQ(bfloat16(std::numeric_limits<uint64_t>::max()).bits, 0x5f80);
  EXPECT_EQ(bfloat16((uint64_t{1} << 63) + (uint64_t{1} << 55)).bits, 0x5f00);
  EXPECT_EQ(bfloat16((uint64_t{1} << 63) + (uint64_t{1} << 55) + 1).bits, 0x5f01);
  EXPECT_EQ(bfloat16(1 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
  EXPECT_EQ(bfloat16(1 + 0x1p-8).bits, 0x3f80);
  EXPECT_EQ(float16(1 + 0x1p-11 + 0x1p-50).bits, 0x3c01);
  EXPECT_EQ(float16(0x1p-25 + 0x1p-70).bits, 0x0001);
  EXPECT_EQ(float16(0x1p-25).bits, 0x0000);
  EXPECT_EQ(float16(bfloat16(0.1f)).bits, float16(0.10009765625).bits);
  EXPECT_EQ(bfloat16(float16(65504)).bits, 0x4780);
  EXPECT_EQ(bfloat16(3.14159265f).bits, 0x4049);
  EXPECT_EQ(float16(0.1f).bits, 0x2e66);
}

TEST(Half, ConstantsOfTheCompilerAreTheSame) {
  static_assert(bfloat16(1.5).bits == 0x3fc0 && float16(1.5).bits == 0x3e00);
  static_assert(float16(0x1p-24).bits == 1 && float16(0x1p-15f).bits == 0x0200 &&
                float16(1e300).bits == 0x7c00);
  static_assert(bfloat16(int64_t{257}).bits == 0x4380 &&
                static_cast<float>(float16::from_bits(1)) == 0x1p-24f);
  static_assert(bfloat16(2.f) + float16(3.f) == 5.f && bfloat16(2) < bfloat16(3) &&
                !(bfloat16(1) == float16(2)));
  static_assert(std::is_trivial_v<bfloat16> && std::is_trivial_v<float16> && sizeof(bfloat16) == 2 &&
                sizeof(float16) == 2);
  static_assert(!std::is_convertible_v<float, bfloat16> && std::is_convertible_v<bfloat16, float>);
}

TYPED_TEST(HalfTest, Limits) {
  using T = TypeParam;
  using L = std::numeric_limits<T>;
  EXPECT_EQ(L::infinity().bits, infinity_bits<T>);
  EXPECT_EQ(L::max().bits, infinity_bits<T> - 1);
  EXPECT_EQ(static_cast<float>(L::lowest()), -static_cast<float>(L::max()));
  EXPECT_EQ(L::min().bits, 1 << Format<T>::fraction);
  EXPECT_EQ(static_cast<float>(L::min()), std::ldexp(1, L::min_exponent - 1));
  EXPECT_EQ(L::digits, Format<T>::fraction + 1);
  EXPECT_EQ(static_cast<float>(L::epsilon()), std::ldexp(1, -Format<T>::fraction));
  EXPECT_LT(static_cast<double>(L::max()), std::ldexp(1, L::max_exponent));
  EXPECT_TRUE(std::isnan(static_cast<float>(L::quiet_NaN())));
  EXPECT_EQ(L::denorm_min().bits, 1);
}

// bf16 and f16 tensors: how they are made, copied, cast and printed. tests/ops/half_test.cpp tests ops on
// them.

DEVICE_SUITE(HalfTensorTest);

template <class T>
std::vector<uint16_t> bits(const Tensor& t) {
  std::vector<uint16_t> all;
  for (const T x : t.to_vector<T>()) all.push_back(x.bits);
  return all;
}

/// All 65536 patterns as a tensor.
template <class T>
Tensor patterns(Device device) {
  std::vector<T> all;
  for (int i = 0; i < 65536; ++i) all.push_back(T::from_bits(static_cast<uint16_t>(i)));
  return from_vector(all, {65536}, device);
}

template <class T>
void check_casts_of_every_pattern(Device device) {
  const Tensor x = patterns<T>(device);
  const auto wide = x.to(f32).to_vector<float>();
  const auto doubles = x.to(f64).to_vector<double>();
  for (size_t i = 0; i < wide.size(); ++i) {
    const float expected = T::from_bits(static_cast<uint16_t>(i));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(doubles[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
      ASSERT_EQ(doubles[i], expected) << i;
    }
  }
  const auto back = bits<T>(x.to(f32).to(x.dtype())), from_double = bits<T>(x.to(f64).to(x.dtype()));
  for (size_t i = 0; i < back.size(); ++i) {
    const size_t expected = std::isnan(wide[i]) ? 0x7fff : i;
    ASSERT_EQ(back[i], expected);
    ASSERT_EQ(from_double[i], expected);
  }
  // Ops that only move elements keep their bits, also those of a NaN.
  const auto moved = bits<T>(x.reshape({256, 256}).transpose(0, 1).contiguous().transpose(0, 1).contiguous());
  const auto chosen = bits<T>(where(full({65536}, true, {boolean, device}), x, x));
  for (size_t i = 0; i < moved.size(); ++i) {
    ASSERT_EQ(moved[i], i);
    ASSERT_EQ(chosen[i], i);
  }
}
TEST_P(HalfTensorTest, CastsOfEveryPattern) {
  check_casts_of_every_pattern<bfloat16>(device());
  check_casts_of_every_pattern<float16>(device());
}

/// Numbers that round in every possible way: ties, their neighbours, overflow, denormals, NaN.
template <class T>
Doubles hard_numbers() {
  Doubles x{0, -0.0, inf, -inf, NAN, 1e300, -1e300, 1e-300, 0x1p-149, 65519.9, 65520, 3.4e38, -3.39e38};
  for (int i = 0; i < 0x7fff; i += 5) {
    const double a = static_cast<float>(T::from_bits(static_cast<uint16_t>(i)));
    const double b = static_cast<float>(T::from_bits(static_cast<uint16_t>(i + 1)));
    if (!std::isfinite(a + b)) break;
    const double tie = (a + b) / 2;
    for (const double v : {tie, std::nextafter(tie, 0), std::nextafter(tie, inf), -tie}) x.push_back(v);
  }
  return x;
}

template <class T>
void check_rounding(Device device) {
  const Doubles numbers = hard_numbers<T>();
  const auto n = static_cast<int64_t>(numbers.size());
  const Tensor wide = from_vector(numbers, {n}, device), narrow = wide.to(f32);
  const auto from_f64 = bits<T>(wide.to(dtype_of<T>())), from_f32 = bits<T>(narrow.to(dtype_of<T>()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(from_f64[i], T(numbers[i]).bits) << numbers[i];
    ASSERT_EQ(from_f32[i], T(static_cast<float>(numbers[i])).bits) << numbers[i];
  }
}
TEST_P(HalfTensorTest, CastsRoundOnceOnEveryDevice) {
  check_rounding<bfloat16>(device());
  check_rounding<float16>(device());
}

TEST_P(HalfTensorTest, CastsBetweenAllDtypes) {
  const Tensor x = make({1.9, -1.9, 300, 0, 255, 1}, {6});
  for (const DType half : {bf16, f16}) {
    const Tensor h = x.to(half);
    EXPECT_EQ(h.dtype(), half);
    EXPECT_EQ(h.to(i64).to_vector<int64_t>(), (Ints{1, -1, 300, 0, 255, 1}));
    EXPECT_EQ(h.to(u8).to_vector<uint8_t>(), (Bytes{1, 0, 255, 0, 255, 1}));
    EXPECT_EQ(h.to(boolean).to_vector<bool>(), (Bools{true, true, true, false, true, true}));
    for (const DType from : {i64, u8, boolean}) {
      const Tensor whole = x.to(from);
      EXPECT_EQ(whole.to(half).to(f64).to_vector<double>(), whole.to(f64).to_vector<double>()) << from;
    }
  }
  EXPECT_EQ(ints({257, -259, (int64_t{1} << 62) + (int64_t{1} << 54) + 1}, {3})
                .to(bf16)
                .to(f64)
                .to_vector<double>(),
            (Doubles{256, -260, 0x1.02p62}));
  const Tensor h = full({2}, 65504, on(f16));
  EXPECT_EQ(h.to(bf16).to(f32).to_vector<float>(), Floats(2, 65536));
  EXPECT_EQ(h.to(bf16).to(f16).to(f32).to_vector<float>(), Floats(2, HUGE_VALF));
  EXPECT_EQ(h.to(f16).impl(), h.impl());
  const Tensor nans = from_vector<float>({NAN, HUGE_VALF, -HUGE_VALF}, {3}, device()).to(f16);
  EXPECT_EQ(nans.to(i64).to_vector<int64_t>(), (Ints{0, INT64_MAX, INT64_MIN}));
}

TEST_P(HalfTensorTest, StridedCasts) {
  const Tensor x = arange(24, on(f32)).reshape({2, 3, 4}).permute({2, 0, 1});
  for (const DType half : {bf16, f16}) {
    const Tensor h = x.to(half);
    EXPECT_EQ(h.to(f32).to_vector<float>(), x.to_vector<float>());
    EXPECT_EQ(h.slice(0, 1, 4, 2).transpose(0, 2).to(f32).to_vector<float>(),
              x.slice(0, 1, 4, 2).transpose(0, 2).to_vector<float>());
    EXPECT_EQ(h.select(0, 2).expand({2, 2, 3}).contiguous().to(f64).numel(), 12);
  }
}

TEST_P(HalfTensorTest, Factories) {
  EXPECT_EQ(bits<bfloat16>(zeros({2}, on(bf16))), (std::vector<uint16_t>{0, 0}));
  EXPECT_EQ(bits<bfloat16>(ones({2}, on(bf16))), (std::vector<uint16_t>{0x3f80, 0x3f80}));
  EXPECT_EQ(bits<float16>(full({1}, 0.1, on(f16))), (std::vector<uint16_t>{0x2e66}));
  EXPECT_EQ(bits<float16>(full({1}, 1e9, on(f16))), (std::vector<uint16_t>{0x7c00}));
  EXPECT_EQ(bits<bfloat16>(full({1}, bfloat16(1.5), on(bf16))), (std::vector<uint16_t>{0x3fc0}));
  EXPECT_EQ(arange(1, 2.6, 0.5, on(bf16)).to(f32).to_vector<float>(), (Floats{1, 1.5, 2, 2.5}));
  EXPECT_EQ(arange(3, on(f16)).to(f32).to_vector<float>(), (Floats{0, 1, 2}));
  EXPECT_EQ(arange(254, 260, 1, on(bf16)).to(f32).to_vector<float>(), (Floats{254, 255, 256, 256, 258, 260}));
  EXPECT_EQ(eye(2, on(f16)).to(f32).to_vector<float>(), (Floats{1, 0, 0, 1}));
  EXPECT_EQ(bits<bfloat16>(from_vector<bfloat16>({1, -2.5, 0.1f}, {3}, device())),
            (std::vector<uint16_t>{0x3f80, 0xc020, 0x3dcd}));
  const std::vector<float16> values{float16(1), float16(-0.5)};
  EXPECT_EQ(bits<float16>(from_vector(values, {2}, device())), (std::vector<uint16_t>{0x3c00, 0xb800}));
  EXPECT_EQ(full_like(zeros({2}, on(f16)), 3).dtype(), f16);
}

TEST_P(HalfTensorTest, FromBlobItemAndData) {
  std::array<bfloat16, 6> memory{};
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = bfloat16(i);
  const Tensor x = from_blob(memory.data(), {3, 2}, {1, 3});
  EXPECT_EQ(x.dtype(), bf16);
  EXPECT_EQ(x.to(device()).to(f32).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(from_blob(memory.data(), {6}).data<bfloat16>(), memory.data());
  EXPECT_EQ(full({}, 2.5, on(f16)).item<float16>(), 2.5f);
  EXPECT_EQ(full({}, 2.5, on(bf16)).item<bfloat16>(), 2.5f);
  EXPECT_EQ(full({}, 2.5, on(bf16)).item<float>(), 2.5f);
  EXPECT_EQ(full({}, 2.5, on(bf16)).item<float16>(), 2.5f);
}

TEST_P(HalfTensorTest, Prints) {
  const auto where = [&](const char* text) {
    return std::string(text) + (device().is_cuda() ? ", device=cuda:0)" : ")");
  };
  EXPECT_EQ(str(from_vector<bfloat16>({0.1f, -1}, {2}, device())),
            where("tensor([ 0.1001, -1.0000], dtype=bf16"));
  EXPECT_EQ(str(full({}, 3, on(f16))), where("tensor(3., dtype=f16"));
}

TEST_P(HalfTensorTest, RandomNumbersAreThoseOfF32) {
  const Shape shape{10007};
  for (const DType half : {bf16, f16}) {
    Generator a(7), b(7);
    const auto uniform = rand(shape, on(f32), a).to_vector<float>();
    const Tensor narrow = rand(shape, on(half), b);
    const auto got = narrow.to(f32).to_vector<float>();
    const float relative = half == bf16 ? 0x1p-7f : 0x1p-10f;
    for (size_t i = 0; i < got.size(); ++i) {  // rounded down: never 1
      ASSERT_LE(got[i], uniform[i]);
      ASSERT_LE(uniform[i] - got[i], uniform[i] * relative + 0x1p-24f);
      ASSERT_LT(got[i], 1);
    }
    EXPECT_TRUE(same_bits(randn(shape, on(f32), a).to(half), randn(shape, on(half), b)));
    EXPECT_EQ(a.state(), b.state());
  }
  EXPECT_EQ(randint(-256, 257, {100}, on(bf16)).dtype(), bf16);
  EXPECT_ERRORS(ValueError, randint(0, 258, {1}, on(bf16)), randint(0, 2050, {1}, on(f16)));
  Generator a(3), b(3);
  EXPECT_EQ(randint(-2048, 2049, {999}, on(f16), a).to(i64).to_vector<int64_t>(),
            randint(-2048, 2049, {999}, on(i64), b).to_vector<int64_t>());
}

TEST_P(HalfTensorTest, CastsPassGradients) {
  for (const DType half : {bf16, f16}) {
    Tensor x = from_vector<float>({1, 2, 3}, {3}, device()).set_requires_grad(true);
    Tensor y = x.to(half);
    EXPECT_TRUE(y.requires_grad());
    y.backward(from_vector<float>({1, 0.5, -3}, {3}, device()).to(half));
    EXPECT_EQ(x.grad().dtype(), f32);
    EXPECT_EQ(x.grad().to_vector<float>(), (Floats{1, 0.5f, -3}));
    Tensor h = zeros({3}, on(half)).set_requires_grad(true);
    const float third = 1.f / 3;
    h.to(f32).backward(full({3}, third, on(f32)));
    EXPECT_EQ(h.grad().dtype(), half);
    EXPECT_TRUE(same_bits(h.grad(), full({3}, third, on(half))));
  }
}

TEST_P(HalfTensorTest, MixedDtypesAreAnErrorThatNamesBoth) {
  const Tensor b = ones({2}, on(bf16)), h = ones({2}, on(f16)), f = ones({2}, on(f32));
  for (const auto& [left, right] :
       {std::pair(b, h), {h, f}, {f, b}, {b, ones({2}, on(f64))}, {h, ones({2}, on(i64))}}) {
    EXPECT_REFUSED(DTypeError, left + right, to_string(left.dtype()));
    EXPECT_REFUSED(DTypeError, left + right, to_string(right.dtype()));
    EXPECT_ERRORS(DTypeError, eq(left, right), where(full({2}, true, on(boolean)), left, right),
                  left.clone().add_(right));
  }
}

TEST_P(HalfTensorTest, GradcheckRefusesThem) {
  for (const DType half : {bf16, f16}) {
    const Tensor x = ones({2}, on(half)).set_requires_grad(true);
    const auto check = [&] { autograd::gradcheck([](const auto& inputs) { return inputs[0] * 2; }, {x}); };
    EXPECT_EQ(message_of<DTypeError>(check), str("gradcheck: differences need f64 inputs, got ", half));
  }
}

}  // namespace
}  // namespace vox

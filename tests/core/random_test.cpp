#include <voxgrad/core/distributions.h>
#include <voxgrad/core/normal.h>
#include <voxgrad/core/philox.h>

#include "tests/support/test.h"

// rand, randn and randint: their bits, on every device and with any number of threads.

namespace vox {
namespace {

DEVICE_SUITE(Random);

// Block 0 of seed 0 is Random123's known answer 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
TEST_P(Random, UniformsOfTheKnownAnswer) {
  Generator single(0), twice(0);
  EXPECT_EQ(rand({4}, on(f32), single).to_vector<float>(),
            (Floats{0x6627e8 * 0x1p-24f, 0xe169c5 * 0x1p-24f, 0xbc57ac * 0x1p-24f, 0x9b00db * 0x1p-24f}));
  EXPECT_EQ(rand({2}, on(f64), twice).to_vector<double>(),
            (Doubles{(0xe169c58d6627e8d5 >> 11) * 0x1p-53, (0x9b00dbd8bc57ac4c >> 11) * 0x1p-53}));
}

// Box-Muller of the same block, computed by Python's math module.
TEST_P(Random, NormalsOfTheKnownAnswer) {
  Generator single(0), twice(0);
  EXPECT_EQ(randn({2, 2}, on(f32), single).to_vector<float>(),
            (Floats{0x1.fb7666p-1f, -0x1.d96d6p-1f, -0x1.3c373ep-1f, -0x1.eda364p-2f}));
  const auto doubles = randn({2}, on(f64), twice).to_vector<double>();
  EXPECT_DOUBLE_EQ(doubles[0], -0.39766753844418223);
  EXPECT_DOUBLE_EQ(doubles[1], -0.310395478801738);
}

TEST_P(Random, IntegersOfTheKnownAnswer) {
  Generator generator(0);
  EXPECT_EQ(randint(-3, 7, {2}, on(i64), generator).to_vector<int64_t>(), (Ints{5, 3}));
}

TEST_P(Random, SameBitsAsTheCpu) {
  for (int64_t n : {1, 2, 3, 5, 1023, 100'003}) {
    Generator here(123), cpu(123);
    for (const DType dtype : {f32, f64}) {
      EXPECT_TRUE(same_bits(rand({n}, on(dtype), here), rand({n}, {dtype}, cpu)));
      EXPECT_TRUE(same_bits(randn({n}, on(dtype), here), randn({n}, {dtype}, cpu)));
    }
    EXPECT_TRUE(same_bits(randint(0, 256, {n}, on(u8), here), randint(0, 256, {n}, {u8}, cpu)));
    EXPECT_EQ(here.state(), cpu.state());
  }
}

TEST_P(Random, AnElementDoesNotDependOnTheSizeOfItsTensor) {
  Generator small(5), large(5);
  const Floats few = randn({7}, on(f32), small).to_vector<float>();
  const Floats many = randn({30, 1000}, on(f32), large).to_vector<float>();
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST_P(Random, EveryDrawIsNewAndASeedRepeatsThem) {
  const auto draw = [&] { return rand({100}, on(f32)).to_vector<float>(); };
  manual_seed(9);
  const Floats first = draw(), second = draw();
  EXPECT_NE(first, second);
  const GeneratorState state = default_generator().state();
  const Floats third = draw();
  default_generator().set_state(state);
  EXPECT_EQ(draw(), third);
  manual_seed(9);
  EXPECT_EQ(draw(), first);
  manual_seed(10);
  EXPECT_NE(draw(), first);
}

TEST_P(Random, EmptyAndScalarShapes) {
  EXPECT_EQ(rand({0, 3}, on(f32)).shape(), (Shape{0, 3}));
  EXPECT_EQ(randn({}, on(f64)).numel(), 1);
}

// Every kernel, with a last block that is not full; cheap enough for compute-sanitizer.
class RandomSanitize : public Random {};
INSTANTIATE_TEST_SUITE_P(, RandomSanitize, devices(), device_name);

TEST_P(RandomSanitize, PartialBlocks) {
  for (DType dtype : {f32, f64}) {
    const Tensor x = rand({7}, on(dtype)), y = randn({7}, on(dtype));
    EXPECT_EQ(x.to(f64).to_vector<double>().size(), 7u);
    for (double v : y.to(f64).to_vector<double>()) EXPECT_TRUE(std::isfinite(v) && std::abs(v) < 9);
  }
  for (DType dtype : {f32, f64, i64, u8, boolean})
    for (double v : randint(0, 2, {7}, on(dtype)).to(f64).to_vector<double>()) EXPECT_TRUE(v == 0 || v == 1);
}

// Seeds are fixed, so these checks always pass or always fail. Bounds are 5 standard errors.
TEST(RandomStatistics, UniformMoments) {
  Generator generator(1);
  const Doubles x = rand({100'000}, {f64}, generator).to_vector<double>();
  double sum = 0, squares = 0;
  for (double v : x) {
    ASSERT_TRUE(v >= 0 && v < 1);
    sum += v;
    squares += v * v;
  }
  EXPECT_NEAR(sum / 1e5, 0.5, 5 * std::sqrt(1.0 / 12 / 1e5));
  EXPECT_NEAR(squares / 1e5, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / 1e5));
}

TEST(RandomStatistics, NormalMoments) {
  Generator generator(1);
  const Floats x = randn({100'000}, {}, generator).to_vector<float>();
  double sum = 0, squares = 0, fourths = 0, pairs = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], square = v * v;
    ASSERT_TRUE(std::isfinite(v));
    sum += v;
    squares += square;
    fourths += square * square;
    if (i > 0) pairs += v * x[i - 1];
  }
  EXPECT_NEAR(sum / 1e5, 0, 5 * std::sqrt(1 / 1e5));
  EXPECT_NEAR(squares / 1e5, 1, 5 * std::sqrt(2 / 1e5));
  EXPECT_NEAR(fourths / 1e5, 3, 5 * std::sqrt(96 / 1e5));
  EXPECT_NEAR(pairs / 1e5, 0, 5 * std::sqrt(1 / 1e5));
}

TEST(RandomStatistics, IntegersReachEveryValueEquallyOften) {
  Generator generator(2);
  std::vector<int> counts(10);
  for (int64_t v : randint(-4, 6, {100'000}, {i64}, generator).to_vector<int64_t>())
    ++counts.at(static_cast<size_t>(v + 4));
  for (int count : counts) EXPECT_NEAR(count, 10'000, 5 * std::sqrt(9000.0));
}

TEST(RandomStatistics, EveryPermutationOccurs) {
  Generator generator(1);
  std::set<Ints> orders;
  for (int i = 0; i < 60; ++i) orders.insert(randperm(3, Device::cpu(), generator).to_vector<int64_t>());
  EXPECT_EQ(orders.size(), 6u);
}

TEST(RandomThreads, TheirNumberChangesNoBit) {
  EXPECT_TRUE(same_on_any_threads([] {
    Generator generator(3);
    return randn({50'001}, {}, generator);
  }));
}

TEST(RandomErrors, NameTheRule) {
  EXPECT_ERRORS(DTypeError, rand({2}, {i64}), randn({2}, {u8}));
  EXPECT_THROW(rand({-1}), ShapeError);
  EXPECT_ERRORS(ValueError, randint(3, 3, {2}), randint(0, 257, {2}, {u8}), randint(-1, 2, {2}, {u8}),
                randint(0, (1 << 24) + 2, {2}, {f32}));
  EXPECT_NO_THROW(randint(0, (1 << 24) + 1, {2}, {f32}));
  EXPECT_NO_THROW(randint(INT64_MIN, INT64_MAX, {2}));
  const GeneratorState before = default_generator().state();
  EXPECT_THROW(rand({int64_t{1} << 62}), Error);
  EXPECT_EQ(default_generator().state(), before) << "a refused call draws nothing";
}

std::array<uint32_t, 4> words(PhiloxWords block) {
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}
using Words = std::array<uint32_t, 4>;

// The known answers for philox4x32 with 10 rounds, from the file kat_vectors of D. E. Shaw Research's
// Random123.
TEST(Philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(words(philox4x32({{0, 0, 0, 0}}, 0)), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(philox4x32({{~0u, ~0u, ~0u, ~0u}}, ~0ull)),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822)),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  const uint64_t block = 0x0000000100000002, offset = 0x0000000300000004, seed = 0x0000000500000006;
  EXPECT_EQ(words(philox_block(seed, offset, block)), words(philox4x32({{2, 1, 4, 3}}, seed)));
  EXPECT_EQ(uniform_f32(0), 0.0f);
  EXPECT_EQ(uniform_f32(0xff), 0.0f);
  EXPECT_EQ(uniform_f32(0x80000000), 0.5f);
  EXPECT_EQ(uniform_f32(0xffffffff), 1 - 0x1p-24f);
  EXPECT_EQ(uniform_f64(0), 0.0);
  EXPECT_EQ(uniform_f64(0x8000000000000000), 0.5);
  EXPECT_EQ(uniform_f64(~0ull), 1 - 0x1p-53);
  using detail::multiply_high;
  EXPECT_EQ(multiply_high(~0ull, ~0ull), ~0ull - 1);
  EXPECT_EQ(multiply_high(~0ull, 1), 0u);
  EXPECT_EQ(multiply_high(1ull << 63, 6), 3u);
  EXPECT_EQ(multiply_high(0x123456789abcdef0, 0xfedcba9876543210), 0x121fa00ad77d7422u);
}

TEST(Philox, DistributionsAtTheExtremeWords) {
  const PhiloxWords lowest{{0, 0, 0, 0}}, highest{{~0u, ~0u, ~0u, ~0u}};
  float f[4];
  detail::Normal<float>{}.draw(lowest, f);  // u = 2^-32, angle 0: the largest normal, sqrt(64 ln 2)
  EXPECT_FLOAT_EQ(f[0], 6.6604368892615815f);
  EXPECT_EQ(f[1], 0);
  detail::Normal<float>{}.draw(highest, f);  // u = 1, log u = 0
  EXPECT_EQ(f[0], 0);
  EXPECT_EQ(f[1], 0);
  double d[2];
  detail::Normal<double>{}.draw(lowest, d);
  EXPECT_DOUBLE_EQ(d[0], 8.571674348652905);  // sqrt(106 ln 2)
  int64_t i[2];
  detail::Integers<int64_t>{-3, 7}.draw(lowest, i);
  EXPECT_EQ(i[0], -3);
  detail::Integers<int64_t>{-3, 7}.draw(highest, i);
  EXPECT_EQ(i[0], 3);
  detail::Integers<int64_t>{INT64_MIN, ~0ull}.draw(highest, i);
  EXPECT_EQ(i[0], INT64_MAX - 1);
}

TEST(Generator, AdvancesByOneATensorAndRestores) {
  Generator generator(7);
  EXPECT_EQ(generator.next(), (GeneratorState{7, 0}));
  EXPECT_EQ(generator.next(), (GeneratorState{7, 1}));
  const GeneratorState saved = generator.state();
  EXPECT_EQ(saved, (GeneratorState{7, 2}));
  generator.next();
  generator.set_state(saved);
  EXPECT_EQ(generator.next(), (GeneratorState{7, 2}));
  generator.set_seed(9);
  EXPECT_EQ(generator.next(), (GeneratorState{9, 0}));
  manual_seed(42);
  EXPECT_EQ(default_generator().state(), (GeneratorState{42, 0}));
}

TEST(Normal, LogIsWithinTwoUlp) {
  double worst = 0;
  for (int i = 1; i <= 1'000'000; ++i) {
    const double x = i * 1e-6;
    if (i < 1'000'000)
      worst = std::max(worst, ulps<double>(detail::log_rounded(x), std::log(static_cast<long double>(x))));
  }
  for (int e = 1; e <= 53; ++e) {
    for (double m : {1.0, 1.2, 1.4142135623730949, 1.4142135623730951, 1.4142135623730954, 1.9999999}) {
      const double x = std::ldexp(m, -e);
      worst = std::max(worst, ulps<double>(detail::log_rounded(x), std::log(static_cast<long double>(x))));
    }
  }
  for (double x = 1 - 0x1p-53; x > 0.5; x -= (1 - x))
    worst = std::max(worst, ulps<double>(detail::log_rounded(x), std::log(static_cast<long double>(x))));
  EXPECT_LT(worst, 2);
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_EQ(detail::log_rounded(1.0), 0.0);
}

TEST(Normal, SinCosIsWithinAnUlpOfOne) {
  double worst = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const double t = i * 1e-6;
    const detail::SinCos got = detail::sincos_turns(t);
    const long double angle = 2 * std::numbers::pi_v<long double> * t;
    worst = std::max(worst, static_cast<double>(std::abs(got.sin - std::sin(angle))));
    worst = std::max(worst, static_cast<double>(std::abs(got.cos - std::cos(angle))));
  }
  EXPECT_LT(worst, std::numeric_limits<double>::epsilon());
  RecordProperty("worst_error", std::to_string(worst * 0x1p52));
}

TEST(Normal, SinCosIsExactAtQuarterTurns) {
  const double expected_sin[] = {0, 1, 0, -1}, expected_cos[] = {1, 0, -1, 0};
  for (int q = 0; q < 4; ++q) {
    const detail::SinCos got = detail::sincos_turns(q * 0.25);
    EXPECT_EQ(got.sin, expected_sin[q]) << q;
    EXPECT_EQ(got.cos, expected_cos[q]) << q;
  }
  const detail::SinCos last = detail::sincos_turns(1 - 0x1p-53);
  EXPECT_EQ(last.cos, 1);
  EXPECT_NEAR(last.sin, -2 * std::numbers::pi * 0x1p-53, 1e-30);
}

TEST(Normal, BoxMullerOfKnownAngles) {
  const double u = std::exp(-2.0);  // radius 2
  EXPECT_NEAR(detail::box_muller(u, 0).first, 2, 1e-15);
  EXPECT_EQ(detail::box_muller(u, 0).second, 0);
  EXPECT_NEAR(detail::box_muller(u, 0.25).second, 2, 1e-15);
  EXPECT_EQ(detail::box_muller(1, 0.3).first, 0);  // log 1 = 0
}

}  // namespace
}  // namespace vox

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
  std::set<std::vector<int64_t>> orders;
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

}  // namespace
}  // namespace vox

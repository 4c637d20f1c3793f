#include <gtest/gtest.h>

#include <voxgrad/core/factories.h>
#include <voxgrad/core/generator.h>
#include <voxgrad/core/parallel.h>
#include "tests/support/devices.h"

#include <cmath>
#include <set>

// rand, randn and randint: their bits, on every device and with any number of threads.

namespace {

using vox::f32;
using vox::f64;
using vox::Generator;
using vox::Shape;
using vox::Tensor;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ints = std::vector<int64_t>;

class Random : public vox::testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, Random, vox::testing::devices(), vox::testing::device_name);

// Block 0 of seed 0 is Random123's known answer 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
TEST_P(Random, UniformsOfTheKnownAnswer) {
  Generator single(0), twice(0);
  EXPECT_EQ(vox::rand({4}, on(f32), single).to_vector<float>(),
            (Floats{0x6627e8 * 0x1p-24f, 0xe169c5 * 0x1p-24f, 0xbc57ac * 0x1p-24f, 0x9b00db * 0x1p-24f}));
  EXPECT_EQ(vox::rand({2}, on(f64), twice).to_vector<double>(),
            (Doubles{(0xe169c58d6627e8d5 >> 11) * 0x1p-53, (0x9b00dbd8bc57ac4c >> 11) * 0x1p-53}));
}

// Box-Muller of the same block, computed by Python's math module.
TEST_P(Random, NormalsOfTheKnownAnswer) {
  Generator single(0), twice(0);
  EXPECT_EQ(vox::randn({2, 2}, on(f32), single).to_vector<float>(),
            (Floats{0x1.fb7666p-1f, -0x1.d96d6p-1f, -0x1.3c373ep-1f, -0x1.eda364p-2f}));
  const auto doubles = vox::randn({2}, on(f64), twice).to_vector<double>();
  EXPECT_DOUBLE_EQ(doubles[0], -0.39766753844418223);
  EXPECT_DOUBLE_EQ(doubles[1], -0.310395478801738);
}

TEST_P(Random, IntegersOfTheKnownAnswer) {
  Generator generator(0);
  EXPECT_EQ(vox::randint(-3, 7, {2}, on(vox::i64), generator).to_vector<int64_t>(), (Ints{5, 3}));
}

TEST_P(Random, SameBitsAsTheCpu) {
  for (int64_t n : {1, 2, 3, 5, 1023, 100'003}) {
    Generator here(123), cpu(123);
    EXPECT_EQ(vox::rand({n}, on(f32), here).to_vector<float>(), vox::rand({n}, {}, cpu).to_vector<float>());
    EXPECT_EQ(vox::randn({n}, on(f32), here).to_vector<float>(), vox::randn({n}, {}, cpu).to_vector<float>());
    EXPECT_EQ(vox::rand({n}, on(f64), here).to_vector<double>(),
              vox::rand({n}, {f64}, cpu).to_vector<double>());
    EXPECT_EQ(vox::randn({n}, on(f64), here).to_vector<double>(),
              vox::randn({n}, {f64}, cpu).to_vector<double>());
    EXPECT_EQ(vox::randint(0, 256, {n}, on(vox::u8), here).to_vector<uint8_t>(),
              vox::randint(0, 256, {n}, {vox::u8}, cpu).to_vector<uint8_t>());
    EXPECT_EQ(here.state(), cpu.state());
  }
}

TEST_P(Random, AnElementDoesNotDependOnTheSizeOfItsTensor) {
  Generator small(5), large(5);
  const Floats few = vox::randn({7}, on(f32), small).to_vector<float>();
  const Floats many = vox::randn({30, 1000}, on(f32), large).to_vector<float>();
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST_P(Random, EveryDrawIsNewAndASeedRepeatsThem) {
  vox::manual_seed(9);
  const Floats first = vox::rand({100}, on(f32)).to_vector<float>();
  const Floats second = vox::rand({100}, on(f32)).to_vector<float>();
  EXPECT_NE(first, second);
  const vox::GeneratorState state = vox::default_generator().state();
  const Floats third = vox::rand({100}, on(f32)).to_vector<float>();
  vox::default_generator().set_state(state);
  EXPECT_EQ(vox::rand({100}, on(f32)).to_vector<float>(), third);
  vox::manual_seed(9);
  EXPECT_EQ(vox::rand({100}, on(f32)).to_vector<float>(), first);
  vox::manual_seed(10);
  EXPECT_NE(vox::rand({100}, on(f32)).to_vector<float>(), first);
}

TEST_P(Random, EmptyAndScalarShapes) {
  EXPECT_EQ(vox::rand({0, 3}, on(f32)).shape(), (Shape{0, 3}));
  EXPECT_EQ(vox::randn({}, on(f64)).numel(), 1);
}

// Every kernel, with a last block that is not full; cheap enough for compute-sanitizer.
class RandomSanitize : public Random {};
INSTANTIATE_TEST_SUITE_P(, RandomSanitize, vox::testing::devices(), vox::testing::device_name);

TEST_P(RandomSanitize, PartialBlocks) {
  for (vox::DType dtype : {f32, f64}) {
    const Tensor x = vox::rand({7}, on(dtype)), y = vox::randn({7}, on(dtype));
    EXPECT_EQ(x.to(vox::f64).to_vector<double>().size(), 7u);
    for (double v : y.to(vox::f64).to_vector<double>()) EXPECT_TRUE(std::isfinite(v) && std::abs(v) < 9);
  }
  for (vox::DType dtype : {f32, f64, vox::i64, vox::u8, vox::boolean})
    for (double v : vox::randint(0, 2, {7}, on(dtype)).to(vox::f64).to_vector<double>())
      EXPECT_TRUE(v == 0 || v == 1);
}

// Seeds are fixed, so these checks always pass or always fail. Bounds are 5 standard errors.
TEST(RandomStatistics, UniformMoments) {
  Generator generator(1);
  const Doubles x = vox::rand({100'000}, {f64}, generator).to_vector<double>();
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
  const Floats x = vox::randn({100'000}, {}, generator).to_vector<float>();
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
  for (int64_t v : vox::randint(-4, 6, {100'000}, {vox::i64}, generator).to_vector<int64_t>())
    ++counts.at(static_cast<size_t>(v + 4));
  for (int count : counts) EXPECT_NEAR(count, 10'000, 5 * std::sqrt(9000.0));
}

TEST(RandomThreads, TheirNumberChangesNoBit) {
  const int before = vox::get_num_threads();
  Generator one(3), four(3);
  vox::set_num_threads(1);
  const Floats expected = vox::randn({50'001}, {}, one).to_vector<float>();
  vox::set_num_threads(4);
  EXPECT_EQ(vox::randn({50'001}, {}, four).to_vector<float>(), expected);
  vox::set_num_threads(before);
}

TEST(RandomErrors, NameTheRule) {
  EXPECT_THROW(vox::rand({2}, {vox::i64}), vox::DTypeError);
  EXPECT_THROW(vox::randn({2}, {vox::u8}), vox::DTypeError);
  EXPECT_THROW(vox::rand({-1}), vox::ShapeError);
  EXPECT_THROW(vox::randint(3, 3, {2}), vox::ValueError);
  EXPECT_THROW(vox::randint(0, 257, {2}, {vox::u8}), vox::ValueError);
  EXPECT_THROW(vox::randint(-1, 2, {2}, {vox::u8}), vox::ValueError);
  EXPECT_THROW(vox::randint(0, (1 << 24) + 2, {2}, {f32}), vox::ValueError);
  EXPECT_NO_THROW(vox::randint(0, (1 << 24) + 1, {2}, {f32}));
  EXPECT_NO_THROW(vox::randint(INT64_MIN, INT64_MAX, {2}));
  const vox::GeneratorState before = vox::default_generator().state();
  EXPECT_THROW(vox::rand({int64_t{1} << 62}), vox::Error);
  EXPECT_EQ(vox::default_generator().state(), before) << "a refused call draws nothing";
}

}  // namespace

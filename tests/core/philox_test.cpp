#include <voxgrad/core/distributions.h>
#include <voxgrad/core/philox.h>

#include "tests/support/test.h"

namespace vox {
namespace {

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
}

TEST(Philox, CounterIsBlockThenOffset) {
  const uint64_t block = 0x0000000100000002, offset = 0x0000000300000004, seed = 0x0000000500000006;
  EXPECT_EQ(words(philox_block(seed, offset, block)), words(philox4x32({{2, 1, 4, 3}}, seed)));
}

TEST(Philox, UniformsAreExactFractions) {
  EXPECT_EQ(uniform_f32(0), 0.0f);
  EXPECT_EQ(uniform_f32(0xff), 0.0f);
  EXPECT_EQ(uniform_f32(0x80000000), 0.5f);
  EXPECT_EQ(uniform_f32(0xffffffff), 1 - 0x1p-24f);
  EXPECT_EQ(uniform_f64(0), 0.0);
  EXPECT_EQ(uniform_f64(0x8000000000000000), 0.5);
  EXPECT_EQ(uniform_f64(~0ull), 1 - 0x1p-53);
}

TEST(Philox, MultiplyHigh) {
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
}

TEST(Generator, ManualSeedRestartsTheDefaultStream) {
  manual_seed(42);
  EXPECT_EQ(default_generator().state(), (GeneratorState{42, 0}));
}

}  // namespace
}  // namespace vox

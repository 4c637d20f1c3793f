#include "tests/support/test.h"

namespace vox {
namespace {

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
}

TEST_F(PrecisionTest, AGuardRestoresOnException) {
  EXPECT_THROW(
      {
        const PrecisionGuard guard(high);
        throw Error("out of the scope");
      },
      Error);
  EXPECT_EQ(float32_precision(), highest);
}

TEST_F(PrecisionTest, AGuardIsForItsThreadOnly) {
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

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/reduce.h>

#include "tests/support/test.h"

namespace vox::cpu {
namespace {

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
  const simd::FiniteKernels* expected[] = {&simd::baseline::finite_kernels, &simd::v3::finite_kernels,
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

#include <voxgrad/core/device.h>
#include <voxgrad/core/dtype.h>

#include <gtest/gtest.h>

namespace vox {
namespace {

TEST(DType, NamesSizesAndTypes) {
  EXPECT_EQ(str(f32, f64, i64, u8, boolean), "f32f64i64u8bool");
  for (DType dtype : {f32, f64, i64, u8, boolean}) {
    const auto [matches, size] = visit_dtype(dtype, [&]<class T>(T) {
      return std::pair(dtype_of<T>() == dtype, static_cast<int64_t>(sizeof(T)));
    });
    EXPECT_TRUE(matches) << dtype;
    EXPECT_EQ(size, size_of(dtype)) << dtype;
    EXPECT_EQ(is_floating(dtype), dtype == f32 || dtype == f64);
  }
  EXPECT_EQ(dtype_of<const float>(), f32);
}

TEST(DType, VisitFloatingRefusesTheOthers) {
  const auto size = []<class T>(T) { return sizeof(T); };
  EXPECT_EQ(visit_floating("mean", f32, size), 4u);
  EXPECT_EQ(visit_floating("mean", f64, size), 8u);
  for (DType dtype : {i64, u8, boolean}) EXPECT_THROW(visit_floating("mean", dtype, size), DTypeError);
  try {
    visit_floating("mean", i64, size);
  } catch (const DTypeError& error) {
    EXPECT_STREQ(error.what(),
                 "mean: needs a floating dtype, got i64; allowed are f32 and f64 (use to(dtype))");
  }
}

TEST(DType, ACorruptValueIsAnError) {
  EXPECT_THROW(visit_dtype(static_cast<DType>(77), [](auto) {}), DTypeError);
}

TEST(Device, NamesAndEquality) {
  EXPECT_EQ(str(Device::cpu()), "cpu");
  EXPECT_EQ(str(Device::cuda(3)), "cuda:3");
  EXPECT_EQ(Device(), Device::cpu());
  EXPECT_NE(Device::cuda(0), Device::cuda(1));
  EXPECT_NE(Device::cuda(0), Device::cpu());
}

}  // namespace
}  // namespace vox

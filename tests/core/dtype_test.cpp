#include "tests/support/test.h"

namespace vox {
namespace {

TEST(DType, NamesSizesAndTypes) {
  EXPECT_EQ(str(f32, f64, i64, u8, boolean, bf16, f16, i16, u16, i32), "f32f64i64u8boolbf16f16i16u16i32");
  for (DType dtype : {f32, f64, i64, u8, boolean, bf16, f16}) {
    const auto [matches, size] = visit_dtype(dtype, [&]<class T>(T) {
      return std::pair(dtype_of<T>() == dtype, static_cast<int64_t>(sizeof(T)));
    });
    EXPECT_TRUE(matches) << dtype;
    EXPECT_EQ(size, size_of(dtype)) << dtype;
    EXPECT_EQ(is_floating(dtype), dtype == f32 || dtype == f64 || dtype == bf16 || dtype == f16);
    EXPECT_EQ(visit_dtype(dtype, []<class T>(T) { return is_floating_v<T>; }), is_floating(dtype));
    EXPECT_EQ(visit_dtype(dtype, []<class T>(T) { return dtype_of<opmath_t<T>>(); }), opmath(dtype));
    EXPECT_EQ(visit_opmath(dtype, []<class T>(T) { return dtype_of<T>(); }), opmath(dtype));
    EXPECT_EQ(visit_bits(dtype, []<class T>(T) { return static_cast<int64_t>(sizeof(T)); }), size_of(dtype));
  }
  EXPECT_EQ(dtype_of<const float>(), f32);
}

TEST(DType, SomeAreOnlyStored) {
  for (const DType dtype : {i16, u16, i32}) {
    EXPECT_TRUE(is_only_stored(dtype) && !is_floating(dtype)) << dtype;
    EXPECT_EQ(visit_storage(dtype, []<class T>(T) { return dtype_of<T>(); }), dtype);
    EXPECT_EQ(visit_storage(dtype, []<class T>(T) { return static_cast<int64_t>(sizeof(T)); }),
              size_of(dtype));
    EXPECT_EQ(visit_bits(dtype, []<class T>(T) { return static_cast<int64_t>(sizeof(T)); }), size_of(dtype));
    EXPECT_THROW(visit_dtype(dtype, [](auto) {}), DTypeError);
    EXPECT_EQ(testing::message_of<DTypeError>([&] { visit_opmath(dtype, [](auto) {}); }),
              str("no op computes in dtype ", dtype, "; convert with to(vox::f32) or to(vox::i64)"));
  }
  for (const DType dtype : {f32, f64, i64, u8, boolean, bf16, f16})
    EXPECT_FALSE(is_only_stored(dtype)) << dtype;
}

TEST(DType, VisitFloatingRefusesTheOthers) {
  const auto size = []<class T>(T) { return sizeof(T); };
  EXPECT_EQ(visit_floating("mean", f32, size), 4u);
  EXPECT_EQ(visit_floating("mean", f64, size), 8u);
  for (DType dtype : {i64, u8, boolean}) EXPECT_THROW(visit_floating("mean", dtype, size), DTypeError);
  EXPECT_MESSAGE(DTypeError, visit_floating("mean", i64, size),
                 "mean: needs a floating dtype, got i64; allowed are f32 and f64 (use to(dtype))");
}

TEST(DType, SixteenBitsAreStorage) {
  EXPECT_EQ(opmath(bf16), f32);
  EXPECT_EQ(opmath(f16), f32);
  EXPECT_EQ(opmath(f64), f64);
  EXPECT_EQ(opmath(boolean), boolean);
  const auto size = []<class T>(T) { return sizeof(T); };
  EXPECT_EQ(visit_floating_storage("mean", bf16, size), 2u);
  EXPECT_EQ(visit_floating_storage("mean", f16, size), 2u);
  EXPECT_EQ(visit_floating_storage("mean", f64, size), 8u);
  EXPECT_THROW(visit_floating_storage("mean", u8, size), DTypeError);
  for (DType dtype : {bf16, f16}) EXPECT_THROW(visit_floating("mean", dtype, size), DTypeError);
}

TEST(DType, ACorruptValueIsAnError) {
  EXPECT_ERRORS(DTypeError, visit_dtype(static_cast<DType>(77), [](auto) {}),
                visit_opmath(static_cast<DType>(77), [](auto) {}));
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

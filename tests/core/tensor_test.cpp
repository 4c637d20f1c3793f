#include "tests/support/test.h"

// Handles, memory and versions of tensors, without any op.

namespace vox {
namespace {

TEST(Tensor, UndefinedStandsForNone) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_MESSAGE(Error, none.shape(), "shape: the tensor is undefined (default-constructed or moved from)");
  EXPECT_ERRORS(ValueError, none.dtype(), none.device(), none.numel(), none.data<float>(),
                none.requires_grad(), none.detach(), none.item(), none.to_vector<float>(),
                Tensor().mutable_data<float>());
}

TEST(Tensor, EmptyIsDenseAndAligned) {
  const Tensor x = empty({2, 3, 4}, {.dtype = f64});
  EXPECT_EQ(x.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(x.strides(), (Shape{12, 4, 1}));
  EXPECT_EQ(x.rank(), 3);
  EXPECT_EQ(x.size(0), 2);
  EXPECT_EQ(x.size(-1), 4);
  EXPECT_THROW(x.size(3), ShapeError);
  EXPECT_EQ(x.numel(), 24);
  EXPECT_EQ(x.impl()->storage->bytes(), 192);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data<double>()) % 64, 0u);
}

TEST(Tensor, ZeroSizesAndRankZeroAreLegal) {
  EXPECT_EQ(empty({}).numel(), 1);
  const Tensor none = empty({3, 0});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_EQ(none.impl()->storage->bytes(), 0);
  EXPECT_TRUE(none.is_contiguous());
}

TEST(Tensor, HugeSizesAreRefusedBeforeMemoryIsTouched) {
  const int64_t half = int64_t{1} << 32;
  EXPECT_THROW(empty({half, half}), ShapeError);
  EXPECT_THROW(empty({int64_t{1} << 61, 1}), ShapeError) << "the bytes overflow, not the elements";
  EXPECT_ERRORS(ShapeError, empty({INT64_MAX, 0, 2}), empty({-1}), empty({2, INT64_MIN}));
  EXPECT_THROW(empty({int64_t{1} << 58}), OutOfMemoryError) << "2^60 bytes";
  EXPECT_ERRORS(OutOfMemoryError, empty({INT64_MAX - 63}, {.dtype = u8}), zeros({int64_t{1} << 58}));
}

// The limit lasts for the rest of the process, so this test needs one of its own.
TEST(TensorDeathTest, AVectorThatFindsNoMemoryIsAnOutOfMemoryError) {
  if (!can_limit_memory) GTEST_SKIP() << "memory cannot be limited here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto call = [] {
    set_num_threads(1);
    const Tensor x = ones({1}).expand({int64_t{32} << 20});
    limit_memory(int64_t{192} << 20);  // for a dense copy of 128 MiB, not for the vector too
    try {
      x.to_vector<float>();
    } catch (const OutOfMemoryError& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::exit(0);
  };
  EXPECT_EXIT(call(), ::testing::ExitedWithCode(0),
              "to_vector: no memory for a std::vector of the 33554432 elements of shape .33554432,. of f32");
}

TEST(Tensor, CopiesAreHandlesOnTheSameTensor) {
  const Tensor x = empty({2});
  const Tensor y = x;
  EXPECT_EQ(x.impl(), y.impl());
  EXPECT_EQ(x.data<float>(), y.data<float>());
}

TEST(Tensor, DetachSharesMemoryAndVersion) {
  Tensor x = empty({2});
  const Tensor y = x.detach();
  EXPECT_NE(x.impl(), y.impl());
  EXPECT_EQ(x.impl()->storage, y.impl()->storage);
  const uint64_t before = y.impl()->storage->version();
  x.mutable_data<float>();
  EXPECT_EQ(y.impl()->storage->version(), before + 1);
}

TEST(Tensor, DataDemandsTheDtype) {
  Tensor x = empty({1}, {.dtype = i64});
  EXPECT_MESSAGE(
      Error, x.data<float>(),
      "data: asked for elements of dtype f32, the tensor holds i64 (convert with to(dtype) first)");
  EXPECT_ERRORS(DTypeError, x.mutable_data<bool>(), x.to_vector<uint8_t>());
}

TEST(Tensor, MutableDataIsAnInPlaceWrite) {
  Tensor x = empty({1}).set_requires_grad(true);
  const uint64_t before = x.impl()->storage->version();
  EXPECT_THROW(x.mutable_data<float>(), GradError);
  EXPECT_EQ(x.impl()->storage->version(), before) << "a refused write is no write";
  const auto guard = no_grad();
  x.mutable_data<float>()[0] = 3;
  EXPECT_EQ(x.impl()->storage->version(), before + 1);
  EXPECT_EQ(x.item(), 3);
}

TEST(Tensor, StridedAliasesKnowThatTheyAre) {
  const Tensor x = arange(6);
  const auto alias = [&](int64_t offset, const Shape& shape, const Shape& strides) {
    return detail::alias(x, offset, shape, strides);
  };
  EXPECT_TRUE(alias(2, {2, 2}, {2, 1}).is_contiguous());
  EXPECT_FALSE(alias(0, {3, 2}, {1, 3}).is_contiguous());
  EXPECT_FALSE(alias(0, {3, 2}, {0, 1}).is_contiguous());
  EXPECT_TRUE(alias(0, {1, 6}, {99, 1}).is_contiguous()) << "the stride of a single element is never used";
  EXPECT_TRUE(alias(0, {0, 2}, {5, 5}).is_contiguous());
  EXPECT_EQ(alias(1, {2, 2}, {1, 2}).data<float>(), x.data<float>() + 1);
  EXPECT_EQ(alias(1, {2, 2}, {1, 2}).to_vector<float>(), (Floats{1, 3, 2, 4}));
  EXPECT_EQ(alias(5, {}, {}).item(), 5);
  EXPECT_EQ(alias(0, {2, 3}, {0, 2}).to_vector<float>(), (Floats{0, 2, 4, 0, 2, 4}));
}

TEST(Tensor, AnOffsetIntoNothingIsNoAddress) {
  const Tensor x = empty({0, 3});
  EXPECT_EQ(detail::alias(x, 2, {0, 1}, {3, 1}).data<float>(), nullptr);
}

TEST(Tensor, ItemNeedsOneElement) {
  EXPECT_EQ(full({1, 1, 1}, 4).item(), 4);
  EXPECT_ERRORS(ShapeError, zeros({2}).item(), zeros({0}).item());
}

TEST(Tensor, ItemIsADoubleOrAsked) {
  for (const vox::DType dtype : {vox::f32, vox::f64, vox::bf16, vox::f16}) {
    static_assert(std::is_same_v<decltype(vox::Tensor().item()), double>);
    const Tensor x = vox::full({}, -2.5, {.dtype = dtype});
    EXPECT_EQ(x.item(), -2.5);
    EXPECT_EQ(x.item<float>(), -2.5f);
    EXPECT_EQ(x.item<int>(), -2);
    EXPECT_TRUE(x.item<bool>());
    EXPECT_THROW(x.item<uint8_t>(), vox::ValueError);
  }
  const Tensor big = vox::full({}, (int64_t{1} << 53) + 1, {.dtype = i64});
  EXPECT_EQ(big.item<int64_t>(), (int64_t{1} << 53) + 1);
  EXPECT_EQ(big.item<uint64_t>(), (uint64_t{1} << 53) + 1);
  EXPECT_EQ(big.item<double>(), 0x1p53);
  EXPECT_THROW(big.item<int>(), vox::ValueError);
  EXPECT_THROW(big.item(), vox::DTypeError);  // has no double
  EXPECT_EQ(vox::full({}, true, {.dtype = vox::boolean}).item<int>(), 1);
  for (const double value : {std::nan(""), HUGE_VAL, 0x1p63, -0x1p64})
    EXPECT_THROW(vox::full({}, value, {.dtype = vox::f64}).item<int64_t>(), vox::ValueError) << value;
  EXPECT_EQ(vox::full({}, -0x1p63, {.dtype = vox::f64}).item<int64_t>(), std::numeric_limits<int64_t>::min());
}

TEST(Tensor, OnlyFloatingLeavesMayRequireGrad) {
  EXPECT_THROW(zeros({1}, {.dtype = i64}).set_requires_grad(true), DTypeError);
  EXPECT_NO_THROW(zeros({1}, {.dtype = i64}).set_requires_grad(false));
  Tensor x = zeros({1});
  EXPECT_FALSE(x.requires_grad());
  EXPECT_TRUE(x.set_requires_grad(true).requires_grad());
  EXPECT_FALSE(x.detach().requires_grad());
}

TEST(Tensor, CudaWithoutADeviceIsAnError) {
  EXPECT_ERRORS(DeviceError, empty({1}, {.device = Device::cuda(9999)}),
                empty({1}, {.device = Device::cuda(-1)}));
}

TEST(Scalar, RemembersWholeNumbersExactly) {
  EXPECT_EQ(Scalar(INT64_MAX).as_integer(), INT64_MAX);
  EXPECT_TRUE(Element(true).is_integer());
  EXPECT_TRUE(Scalar(3u).is_integer());
  EXPECT_FALSE(Scalar(3.0).is_integer());
  EXPECT_FALSE(Scalar(UINT64_MAX).is_integer()) << "no int64_t holds it";
  EXPECT_EQ(Scalar(UINT64_MAX).as_real(), 0x1p64);
}

TEST(Tensor, ThereIsOneCpu) {
  const Device second{DeviceType::cpu, 1};
  EXPECT_ERRORS(DeviceError, empty({1}, {.device = second}), empty({0}, {.device = second}),
                ones({1}).to(second));
  float value = 0;
  EXPECT_THROW(from_blob(&value, {1}, {1}, second), DeviceError);
}

}  // namespace
}  // namespace vox

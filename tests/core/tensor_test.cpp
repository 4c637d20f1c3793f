#include <voxgrad/config.h>

#include "tests/support/test.h"

// Tensors without any op: dtypes, handles, memory, versions and printing.

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

TEST(Tensor, ItemOfOneElement) {
  EXPECT_EQ(full({1, 1, 1}, 4).item(), 4);
  EXPECT_ERRORS(ShapeError, zeros({2}).item(), zeros({0}).item());
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
  for (const double value : {nan, HUGE_VAL, 0x1p63, -0x1p64})
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

TEST(Tensor, DevicesThatAreNotThere) {
  EXPECT_ERRORS(DeviceError, empty({1}, {.device = Device::cuda(9999)}),
                empty({1}, {.device = Device::cuda(-1)}));
  const Device second{DeviceType::cpu, 1};
  EXPECT_ERRORS(DeviceError, empty({1}, {.device = second}), empty({0}, {.device = second}),
                ones({1}).to(second));
  float value = 0;
  EXPECT_THROW(from_blob(&value, {1}, {1}, second), DeviceError);
}

TEST(Scalar, RemembersWholeNumbersExactly) {
  EXPECT_EQ(Scalar(INT64_MAX).as_integer(), INT64_MAX);
  EXPECT_TRUE(Element(true).is_integer());
  EXPECT_TRUE(Scalar(3u).is_integer());
  EXPECT_FALSE(Scalar(3.0).is_integer());
  EXPECT_FALSE(Scalar(UINT64_MAX).is_integer()) << "no int64_t holds it";
  EXPECT_EQ(Scalar(UINT64_MAX).as_real(), 0x1p64);
}

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

TEST(DType, VisitorsRefuseOtherDtypes) {
  const auto size = []<class T>(T) { return sizeof(T); };
  EXPECT_EQ(visit_floating("mean", f32, size), 4u);
  EXPECT_EQ(visit_floating("mean", f64, size), 8u);
  for (DType dtype : {i64, u8, boolean}) EXPECT_THROW(visit_floating("mean", dtype, size), DTypeError);
  EXPECT_MESSAGE(DTypeError, visit_floating("mean", i64, size),
                 "mean: needs a floating dtype, got i64; allowed are f32 and f64 (use to(dtype))");
  EXPECT_EQ(opmath(bf16), f32);
  EXPECT_EQ(opmath(f16), f32);
  EXPECT_EQ(opmath(f64), f64);
  EXPECT_EQ(opmath(boolean), boolean);
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

TEST(Print, Numbers) {
  EXPECT_EQ(str(full({}, 3)), "tensor(3.)");
  EXPECT_EQ(str(full({}, 2.5, {.dtype = f64})), "tensor(2.5000, dtype=f64)");
  EXPECT_EQ(str(from_vector<float>({1, -2, 30}, {3})), "tensor([ 1., -2., 30.])");
  EXPECT_EQ(str(from_vector<float>({0.5, -1}, {2})), "tensor([ 0.5000, -1.0000])");
  EXPECT_EQ(str(Tensor()), "tensor(undefined)");
  EXPECT_EQ(str(empty({2, 0})), "tensor([], shape=(2,0))");
  EXPECT_EQ(str(from_vector<int64_t>({1, -200}, {2})), "tensor([   1, -200], dtype=i64)");
  EXPECT_EQ(str(from_vector<uint8_t>({7, 255}, {2})), "tensor([  7, 255], dtype=u8)");
  EXPECT_EQ(str(from_vector<bool>({true, false}, {2})), "tensor([ true, false], dtype=bool)");
  EXPECT_EQ(str(from_vector<float>({INFINITY, -INFINITY, NAN, 1}, {4})), "tensor([ inf, -inf,  nan,   1.])");
  EXPECT_EQ(str(from_vector<float>({1e-5f, 1}, {2})), "tensor([1.0000e-05, 1.0000e+00])");
  EXPECT_EQ(str(from_vector<double>({1e9, 1}, {2})), "tensor([1.0000e+09, 1.0000e+00], dtype=f64)");
}

TEST(Print, MatricesAndLongRows) {
  EXPECT_EQ(str(arange(90, 110, 5).reshape({2, 2})),
            "tensor([[ 90.,  95.],\n"
            "        [100., 105.]])");
  EXPECT_EQ(str(arange(8).reshape({2, 2, 2})),
            "tensor([[[0., 1.],\n"
            "         [2., 3.]],\n"
            "\n"
            "        [[4., 5.],\n"
            "         [6., 7.]]])");
  EXPECT_EQ(str(arange(6).reshape({2, 3}).transpose(0, 1)),
            "tensor([[0., 3.],\n"
            "        [1., 4.],\n"
            "        [2., 5.]])");
  EXPECT_EQ(str(arange(2).reshape({2, 1}).expand({2, 2})),
            "tensor([[0., 0.],\n"
            "        [1., 1.]])");
  EXPECT_EQ(str(arange(20)),
            "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n"
            "        14., 15., 16., 17., 18., 19.])");
  EXPECT_EQ(str(arange(1001)), "tensor([   0.,    1.,    2., ...,  998.,  999., 1000.], shape=(1001,))");
  EXPECT_EQ(str(arange(1001).reshape({1001, 1})),
            "tensor([[   0.],\n        [   1.],\n        [   2.],\n        ...,\n"
            "        [ 998.],\n        [ 999.],\n        [1000.]], shape=(1001,1))");
  EXPECT_EQ(str(arange(2000).reshape({2, 1000})),
            "tensor([[   0.,    1.,    2., ...,  997.,  998.,  999.],\n"
            "        [1000., 1001., 1002., ..., 1997., 1998., 1999.]], shape=(2,1000))");
  const std::string text = str(full({1, 20}, 1234567, {.dtype = i64}));  // 9 + 8 * 8 + 7 columns
  EXPECT_EQ(text.find('\n'), 80u);
}

TEST(Print, NamesRequiresGrad) {
  EXPECT_EQ(str(ones({1}).set_requires_grad(true)), "tensor([1.], requires_grad=true)");
}

TEST(Print, IgnoresAndKeepsTheStreamsFlags) {
  std::ostringstream out;
  out << std::setprecision(1) << std::scientific << full({}, 0.25) << ' ' << 0.25;
  EXPECT_EQ(out.str(), "tensor(0.2500) 2.5e-01");
}

DEVICE_SUITE(PrintOnDevice);

TEST_P(PrintOnDevice, NamesTheDeviceUnlessItIsTheCpu) {
  const Tensor x = from_vector<float>({1, 2}, {2}, device());
  EXPECT_EQ(str(x), device().is_cpu() ? "tensor([1., 2.])" : "tensor([1., 2.], device=cuda:0)");
}

TEST(WithoutTheToolkit, EveryCallSaysWhatIsMissingAndHowToGetIt) {
  if (VOXGRAD_HAS_CUDA) GTEST_SKIP() << "this build has CUDA";
  EXPECT_FALSE(cuda::is_available());
  EXPECT_EQ(cuda::device_count(), 0);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"Stream", [] { cuda::Stream(); }},
      {"Stream::borrow", [] { (void)cuda::Stream::borrow(nullptr, Device::cuda()); }},
      {"current_stream", [] { (void)cuda::current_stream(); }},
      {"synchronize", [] { cuda::synchronize(); }},
      {"memory_stats", [] { (void)cuda::memory_stats(); }},
      {"reset_peak_memory_stats", [] { cuda::reset_peak_memory_stats(); }},
      {"empty_cache", [] { cuda::empty_cache(); }},
      {"Event", [] { cuda::Event(); }},
      {"Graph", [] { cuda::Graph([] {}); }},
      {"device_name", [] { (void)cuda::device_name(); }},
      {"device_memory", [] { (void)cuda::device_memory(); }},
      {"memory_stats", [] { (void)memory_stats(Device::cuda()); }},
      {"ones", [] { (void)ones({2}, Device::cuda()); }},
      {"to", [] { (void)ones({2}).to(Device::cuda()); }},
      {"from_vector", [] { (void)from_vector<float>({1}, {1}, Device::cuda()); }},
      {"arange", [] { (void)arange(3, Device::cuda()); }},
      {"linspace", [] { (void)linspace(0, 1, 3, Device::cuda()); }},
      {"eye", [] { (void)eye(3, Device::cuda()); }},
      {"rand", [] { (void)rand({3}, Device::cuda()); }},
      {"randperm", [] { (void)randperm(3, Device::cuda()); }},
      {"allocate", [] { (void)Storage::allocate(4, Device::cuda()); }},
  };
  for (const auto& [name, call] : calls) {
    const std::string message = message_of<DeviceError>(call);
    EXPECT_EQ(message.find(std::string(name) + ": "), 0u) << message;
    EXPECT_TRUE(has_parts(message, {"VOXGRAD_CUDA=ON"}));
  }
}

}  // namespace
}  // namespace vox

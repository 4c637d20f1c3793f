#include "tests/support/test.h"

namespace vox {
namespace {

TEST(Print, ScalarsAndRows) {
  EXPECT_EQ(str(full({}, 3)), "tensor(3.)");
  EXPECT_EQ(str(full({}, 2.5, {.dtype = f64})), "tensor(2.5000, dtype=f64)");
  EXPECT_EQ(str(from_vector<float>({1, -2, 30}, {3})), "tensor([ 1., -2., 30.])");
  EXPECT_EQ(str(from_vector<float>({0.5, -1}, {2})), "tensor([ 0.5000, -1.0000])");
}

TEST(Print, UndefinedAndEmpty) {
  EXPECT_EQ(str(Tensor()), "tensor(undefined)");
  EXPECT_EQ(str(empty({2, 0})), "tensor([], shape=(2,0))");
}

TEST(Print, IntegersAndBools) {
  EXPECT_EQ(str(from_vector<int64_t>({1, -200}, {2})), "tensor([   1, -200], dtype=i64)");
  EXPECT_EQ(str(from_vector<uint8_t>({7, 255}, {2})), "tensor([  7, 255], dtype=u8)");
  EXPECT_EQ(str(from_vector<bool>({true, false}, {2})), "tensor([ true, false], dtype=bool)");
}

TEST(Print, NonFiniteNumbersAndWideRanges) {
  EXPECT_EQ(str(from_vector<float>({INFINITY, -INFINITY, NAN, 1}, {4})), "tensor([ inf, -inf,  nan,   1.])");
  EXPECT_EQ(str(from_vector<float>({1e-5f, 1}, {2})), "tensor([1.0000e-05, 1.0000e+00])");
  EXPECT_EQ(str(from_vector<double>({1e9, 1}, {2})), "tensor([1.0000e+09, 1.0000e+00], dtype=f64)");
}

TEST(Print, MatricesNestAndAlign) {
  EXPECT_EQ(str(arange(90, 110, 5).reshape({2, 2})),
            "tensor([[ 90.,  95.],\n"
            "        [100., 105.]])");
  EXPECT_EQ(str(arange(8).reshape({2, 2, 2})),
            "tensor([[[0., 1.],\n"
            "         [2., 3.]],\n"
            "\n"
            "        [[4., 5.],\n"
            "         [6., 7.]]])");
}

TEST(Print, ViewsInTheirOwnOrder) {
  EXPECT_EQ(str(arange(6).reshape({2, 3}).transpose(0, 1)),
            "tensor([[0., 3.],\n"
            "        [1., 4.],\n"
            "        [2., 5.]])");
  EXPECT_EQ(str(arange(2).reshape({2, 1}).expand({2, 2})),
            "tensor([[0., 0.],\n"
            "        [1., 1.]])");
}

TEST(Print, ALineHasUpTo80Columns) {
  const std::string text = str(full({1, 20}, 1234567, {.dtype = i64}));  // 9 + 8 * 8 + 7 columns
  EXPECT_EQ(text.find('\n'), 80u);
}

TEST(Print, LeavesOutTheMiddleAboveAThousand) {
  EXPECT_EQ(str(arange(1001)), "tensor([   0.,    1.,    2., ...,  998.,  999., 1000.], shape=(1001,))");
  EXPECT_EQ(str(arange(1001).reshape({1001, 1})),
            "tensor([[   0.],\n        [   1.],\n        [   2.],\n        ...,\n"
            "        [ 998.],\n        [ 999.],\n        [1000.]], shape=(1001,1))");
  EXPECT_EQ(str(arange(2000).reshape({2, 1000})),
            "tensor([[   0.,    1.,    2., ...,  997.,  998.,  999.],\n"
            "        [1000., 1001., 1002., ..., 1997., 1998., 1999.]], shape=(2,1000))");
}

TEST(Print, BreaksLongRows) {
  EXPECT_EQ(str(arange(20)),
            "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n"
            "        14., 15., 16., 17., 18., 19.])");
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

}  // namespace
}  // namespace vox

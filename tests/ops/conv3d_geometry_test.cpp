#include "tests/support/conv3d.h"
#include "tests/support/test.h"

// R5: which arguments are refused, with which message; and which sizes result.

namespace vox {
namespace {

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

class Conv3dRefusals : public DeviceTest {
 protected:
  static Tensor make(const Shape& shape, DType dtype = f32) {
    return integer_tensor(shape, 1, dtype, device());
  }
  static void transpose(const Shape& x, const Shape& w, const ConvTranspose3dOptions& options = {},
                        const Tensor& bias = {}) {
    conv_transpose3d(make(x), make(w), bias, options);
  }
  static void ordinary(const Shape& x, const Shape& w, const Conv3dOptions& options = {}) {
    conv3d(make(x), make(w), {}, options);
  }
};
INSTANTIATE_TEST_SUITE_P(, Conv3dRefusals, devices(), device_name);

const Shape x4{1, 4, 3, 3, 3}, w4{4, 2, 3, 3, 3};

TEST_P(Conv3dRefusals, Channels) {
  EXPECT_REFUSED(ShapeError, transpose({1, 3, 3, 3, 3}, w4), "conv_transpose3d", "C_in = 3", "(4,2,3,3,3)",
                 "(1,3,3,3,3)");
  EXPECT_REFUSED(ShapeError, ordinary(x4, w4), "conv3d", "C_in/groups = 4", "(4,2,3,3,3)");
  EXPECT_REFUSED(ShapeError, transpose(x4, w4, {.groups = 3}), "groups must divide", "groups 3",
                 "4 channels");
  EXPECT_REFUSED(ShapeError, ordinary(x4, {6, 1, 1, 1, 1}, {.groups = 4}), "output channels", "6 channels");
  EXPECT_REFUSED(ShapeError, transpose({1, 0, 3, 3, 3}, {0, 2, 1, 1, 1}), "input", "(1,0,3,3,3)");
}

TEST_P(Conv3dRefusals, Ranks) {
  EXPECT_REFUSED(ShapeError, transpose({3, 3, 3}, w4), "(N, C, D, H, W)", "(3,3,3)");
  EXPECT_REFUSED(ShapeError, transpose({1, 1, 4, 3, 3, 3}, w4), "(1,1,4,3,3,3)");
  EXPECT_REFUSED(ShapeError, ordinary(x4, {4, 4, 3, 3}), "weight must have 5 dimensions", "(4,4,3,3)");
}

TEST_P(Conv3dRefusals, Bias) {
  EXPECT_REFUSED(ShapeError, transpose(x4, w4, {}, make({4})), "bias", "(2,)", "(4,)");
  EXPECT_REFUSED(ShapeError, transpose(x4, w4, {}, make({2, 1})), "bias", "(2,1)");
}

TEST_P(Conv3dRefusals, Steps) {
  for (const Triple& bad : {Triple(0), Triple(1, 0, 1), Triple(2, 2, -1)}) {
    EXPECT_REFUSED(ValueError, transpose(x4, w4, {.stride = bad}), "stride must be >= 1", str(bad));
    EXPECT_REFUSED(ValueError, transpose(x4, w4, {.dilation = bad}), "dilation must be >= 1", str(bad));
    EXPECT_REFUSED(ValueError, ordinary(x4, {2, 4, 1, 1, 1}, {.stride = bad}), "conv3d: stride", str(bad));
  }
  const Triple negative(0, -1, 0);
  EXPECT_REFUSED(ValueError, transpose(x4, w4, {.padding = negative}), "padding must be >= 0");
  EXPECT_REFUSED(ValueError, transpose(x4, w4, {.output_padding = negative}), "output_padding must be >= 0");
  EXPECT_REFUSED(ValueError, transpose(x4, w4, {.groups = 0}), "groups must be >= 1", "got 0");
  EXPECT_REFUSED(ValueError, transpose(x4, w4, {.groups = -2}), "got -2");
  EXPECT_REFUSED(ShapeError, transpose(x4, {4, 2, 3, 0, 3}), "weight", "(4,2,3,0,3)");
}

TEST_P(Conv3dRefusals, OutputPadding) {
  EXPECT_REFUSED(ValueError, transpose(x4, w4, {.stride = 2, .output_padding = {1, 2, 1}}),
                 "output_padding must be smaller than stride or dilation", "(1,2,1)", "(1,1,1)");
  EXPECT_REFUSED(ValueError, transpose(x4, w4, {.output_padding = 1}), "allowed are (0,0,0) to (0,0,0)");
  EXPECT_NO_THROW(transpose(x4, w4, {.output_padding = 1, .dilation = 2}));  // below the dilation is enough
}

TEST_P(Conv3dRefusals, EmptyOutputs) {
  EXPECT_REFUSED(ShapeError, transpose(x4, w4, {.padding = {1, 3, 1}}), "empty", "(3,-1,3)",
                 "padding (1,3,1)");
  EXPECT_REFUSED(ShapeError, ordinary(x4, {2, 4, 3, 4, 3}), "empty", "kernel (3,4,3)");
  EXPECT_REFUSED(ShapeError, ordinary({1, 1, 0, 3, 3}, {1, 1, 1, 1, 1}, {.padding = 1}), "(1,1,0,3,3)");
}

TEST_P(Conv3dRefusals, Operands) {
  EXPECT_REFUSED(ValueError, conv_transpose3d({}, make(w4)), "'input' is an undefined tensor");
  EXPECT_REFUSED(ValueError, conv3d(make(x4), {}), "'weight' is an undefined tensor");
  EXPECT_REFUSED(DTypeError, conv_transpose3d(make(x4), make(w4, f64)), "f32", "f64");
  EXPECT_REFUSED(DTypeError, conv_transpose3d(make(x4), make(w4), make({2}, f64)), "f32", "f64");
  const Tensor whole = zeros(x4, {.dtype = i64, .device = device()});
  EXPECT_REFUSED(DTypeError, conv_transpose3d(whole, zeros(w4, whole.options())), "i64",
                 "f32, f64, bf16 and f16");
}

TEST(Conv3dRefusalsCuda, MixedDevices) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Tensor x = zeros(x4), w = zeros(w4, {.device = Device::cuda()});
  EXPECT_REFUSED(DeviceError, conv_transpose3d(x, w), "cpu", "cuda:0");
  EXPECT_REFUSED(DeviceError, conv_transpose3d(x.to(w.device()), w, zeros({2})), "cpu", "cuda:0");
}

// Nothing here may touch memory: the sizes, or their bytes, overflow 64 bits.
TEST_P(Conv3dRefusals, HugeSizes) {
  for (const int64_t n : {huge, huge - 1, huge / 2, huge / 4, int64_t{1} << 62}) {
    EXPECT_THROW(transpose(x4, w4, {.stride = n}), ShapeError) << n;
    EXPECT_THROW(transpose(x4, w4, {.dilation = n}), ShapeError) << n;
    EXPECT_THROW(transpose(x4, w4, {.padding = n}), ShapeError) << n;
    EXPECT_THROW(transpose(x4, w4, {.stride = {1, 1, n}}), ShapeError) << n;
    EXPECT_THROW(transpose(x4, w4, {.stride = n, .padding = n, .dilation = n}), ShapeError) << n;
    EXPECT_THROW(transpose(x4, w4, {.output_padding = n}), ValueError) << n;
    EXPECT_THROW(transpose(x4, w4, {.output_size = Triple(n)}), ShapeError) << n;
    EXPECT_THROW(transpose(x4, w4, {.groups = n}), ShapeError) << n;
    EXPECT_THROW(ordinary(x4, {2, 4, 2, 2, 2}, {.padding = n}), ShapeError) << n;
    EXPECT_THROW(ordinary(x4, {2, 4, 2, 2, 2}, {.dilation = n}), ShapeError) << n;
    EXPECT_THROW(ordinary(x4, {2, 4, 2, 2, 2}, {.groups = n}), ShapeError) << n;
    EXPECT_THROW(conv3d_weight_grad(make(x4), make(x4), n), ShapeError) << n;
    EXPECT_THROW(conv3d_weight_grad(make(x4), make(x4), 1, {.padding = n}), ShapeError) << n;
    EXPECT_THROW(conv_transpose1d(make({1, 1, 2}), make({1, 1, 2}), {}, {.stride = n}), ShapeError) << n;
    EXPECT_THROW(conv_transpose2d(make({1, 1, 2, 2}), make({1, 1, 2, 2}), {}, {.dilation = n}), ShapeError)
        << n;
  }
  // 2^20 cells on each axis: every extent is modest, their product is not. (1 << 21)^3 = 2^63.
  EXPECT_THROW(transpose({1, 1, 2, 2, 2}, {1, 1, 1, 1, 1}, {.stride = int64_t{1} << 21}), ShapeError);
  // Expanded memory is small, its element count is not.
  const Tensor wide = make({1, 1, 1, 1, 1}).expand({int64_t{1} << 40, int64_t{1} << 20, 1, 1, 1});
  EXPECT_THROW(conv_transpose3d(wide, make({1, 1, 1, 1, 1})), Error);
}

// Strides, dilations and paddings of any size are legal if no cell is that far away.
TEST_P(Conv3dRefusals, HugeStepsThatReachNothing) {
  const Tensor x = tensor({3}, {1, 1, 1, 1, 1}, f32, device());
  const Tensor w = tensor({5}, {1, 1, 1, 1, 1}, f32, device());
  const ConvTranspose3dOptions options{.stride = int64_t{1} << 62, .dilation = huge};
  EXPECT_EQ(values(conv_transpose3d(x, w, {}, options)), (Values{15}));
  EXPECT_EQ(values(conv3d(x, w, {}, {.stride = huge, .dilation = huge})), (Values{15}));
  // Stride 2^40: all but one cell of the output are cropped, 2^39 of them at the low end.
  const Tensor two = tensor({3, 4}, {1, 1, 1, 1, 2}, f32, device());
  const int64_t far = int64_t{1} << 40;
  EXPECT_EQ(values(conv_transpose3d(two, w, {}, {.stride = {1, 1, far}, .padding = {0, 0, far / 2}})),
            (Values{0}));
}

TEST_P(Conv3dRefusals, OutputSize) {
  const Tensor x = make({1, 1, 4, 4, 4}), w = make({1, 1, 3, 3, 3});
  const ConvTranspose3dOptions options{.stride = 2, .padding = 1, .output_size = Triple(7, 8, 7)};
  EXPECT_EQ(conv_transpose3d(x, w, {}, options).shape(), (Shape{1, 1, 7, 8, 7}));
  EXPECT_EQ(values(conv_transpose3d(x, w, {}, options)),
            values(conv_transpose3d(x, w, {}, {.stride = 2, .padding = 1, .output_padding = {0, 1, 0}})));
  for (const Triple& bad : {Triple(20), Triple(7, 7, 9), Triple(6, 7, 7), Triple(-1), Triple(0)}) {
    EXPECT_REFUSED(ShapeError, conv_transpose3d(x, w, {}, {.stride = 2, .padding = 1, .output_size = bad}),
                   "output_size " + str(bad) +
                       " is not reachable: (7,7,7) to (8,8,8) are, with output_padding (0,0,0) to (1,1,1)");
  }
  EXPECT_REFUSED(ValueError,
                 conv_transpose3d(x, w, {}, {.stride = 2, .output_padding = 1, .output_size = Triple(10)}),
                 "not both");
}

TEST_P(Conv3dRefusals, WeightGrad) {
  const Conv3dOptions options{.stride = 2};
  EXPECT_NO_THROW(conv3d_weight_grad(make({2, 3, 5, 5, 5}), make({2, 4, 2, 2, 2}), 2, options));
  EXPECT_NO_THROW(conv3d_weight_grad(make({2, 3, 5, 5, 5}), make({2, 4, 2, 2, 2}), 3, options));
  EXPECT_REFUSED(ShapeError, conv3d_weight_grad(make({2, 3, 5, 5, 5}), make({2, 4, 3, 2, 2}), 2, options),
                 "(2,2,2)", "(3,2,2)");
  EXPECT_REFUSED(ShapeError, conv3d_weight_grad(make({2, 3, 5, 5, 5}), make({1, 4, 2, 2, 2}), 2, options),
                 "batch");
  EXPECT_REFUSED(
      ShapeError,
      conv3d_weight_grad(make({2, 4, 5, 5, 5}), make({2, 3, 2, 2, 2}), 2, {.stride = 2, .groups = 2}),
      "channels of small");
  EXPECT_REFUSED(ShapeError, conv3d_weight_grad(make({3, 5, 5, 5}), make({4, 2, 2, 2}), 2, options),
                 "5 dimensions");
  EXPECT_REFUSED(ValueError, conv3d_weight_grad(make({2, 3, 5, 5, 5}), make({2, 4, 2, 2, 2}), {2, 0, 2}),
                 "kernel_size must be >= 1");
}

}  // namespace
}  // namespace vox

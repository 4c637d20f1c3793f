#include <voxgrad/ops/conv3d_kernel.h>

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
    SCOPED_TRACE(n);
    EXPECT_ERRORS(ShapeError, transpose(x4, w4, {.stride = n}), transpose(x4, w4, {.dilation = n}),
                  transpose(x4, w4, {.padding = n}), transpose(x4, w4, {.stride = {1, 1, n}}),
                  transpose(x4, w4, {.stride = n, .padding = n, .dilation = n}),
                  transpose(x4, w4, {.output_size = Triple(n)}), transpose(x4, w4, {.groups = n}),
                  ordinary(x4, {2, 4, 2, 2, 2}, {.padding = n}),
                  ordinary(x4, {2, 4, 2, 2, 2}, {.dilation = n}),
                  ordinary(x4, {2, 4, 2, 2, 2}, {.groups = n}), conv3d_weight_grad(make(x4), make(x4), n),
                  conv3d_weight_grad(make(x4), make(x4), 1, {.padding = n}),
                  conv_transpose1d(make({1, 1, 2}), make({1, 1, 2}), {}, {.stride = n}),
                  conv_transpose2d(make({1, 1, 2, 2}), make({1, 1, 2, 2}), {}, {.dilation = n}));
    EXPECT_THROW(transpose(x4, w4, {.output_padding = n}), ValueError);
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

// Random arguments to the public calls. Each call must throw a vox::Error exactly if the rules, evaluated
// here in 128 bits, say so. Else it must give the right shape and, if small, the reference's values.

__extension__ typedef __int128 Wide;

struct Source : Random {
  bool one_in(int64_t n) { return (*this)(0, n - 1) == 0; }

  /// Mostly in [low, high]; sometimes an absurd value.
  int64_t odd(int64_t low, int64_t high) {
    if (!one_in(150)) return (*this)(low, high);
    constexpr int64_t most = std::numeric_limits<int64_t>::max();
    const int64_t strange[]{0, -1, -3, int64_t{1} << 62, most, -most - 1};
    return strange[(*this)(0, 5)];
  }
  Triple triple(int64_t low, int64_t high) { return {odd(low, high), odd(low, high), odd(low, high)}; }
};

struct Arguments {
  bool transposed;
  Shape input, weight;
  bool bias;
  int64_t bias_length;
  Triple stride, padding, output_padding, dilation;
  int64_t groups;
};

Arguments draw(Source& source) {
  Arguments a;
  a.transposed = source.one_in(2);
  const bool larger = source.one_in(300);
  const int64_t cells = larger ? 20 : source(2, 5), channels = larger ? 3 : 2;
  a.groups = source.one_in(4) ? source.odd(1, 3) : 1;
  const int64_t usable = std::clamp<int64_t>(a.groups, 1, 3);
  const int64_t per_in = source(1, channels), per_out = source(1, channels);
  const int64_t in = per_in * usable + (source.one_in(50) ? 1 : 0);
  a.input = {source.one_in(40) ? 0 : source(1, 2), in};
  a.weight = a.transposed ? Shape{per_in * usable, per_out} : Shape{per_out * usable, per_in};
  for (int axis = 0; axis < 3; ++axis) {
    a.input.push_back(source.one_in(100) ? 0 : source(1, cells));
    a.weight.push_back(source.one_in(100) ? 0 : source(1, 3));
  }
  if (source.one_in(30)) a.input.erase(0);
  if (source.one_in(60)) a.input.push_back(1);
  if (source.one_in(60)) a.weight.erase(0);
  a.bias = source.one_in(2);
  a.bias_length = per_out * usable + (source.one_in(50) ? 1 : 0);
  a.stride = source.triple(1, 3);
  a.padding = source.triple(0, 2);
  a.dilation = source.triple(1, 3);
  a.output_padding = source.one_in(4) ? source.triple(0, 2) : Triple(0);
  return a;
}

/// The output's shape by the definition, or an empty one where the arguments are illegal.
Shape expected_shape(const Arguments& a) {
  Shape x = a.input;
  const bool batched = x.rank() == 5;
  if (x.rank() == 4) x.insert(0, 1);
  if (x.rank() != 5 || a.weight.rank() != 5 || a.groups < 1) return {};
  const int64_t in = x[1];
  if (in % a.groups != 0) return {};
  const int64_t out = a.transposed ? a.weight[1] * a.groups : a.weight[0];
  if (out % a.groups != 0) return {};
  if (a.transposed ? a.weight[0] != in : a.weight[1] != in / a.groups) return {};
  if (a.bias && a.bias_length != out) return {};
  Shape y{x[0], out};
  for (int64_t axis = 0; axis < 3; ++axis) {
    const Wide cells = x[2 + axis], kernel = a.weight[2 + axis], s = a.stride[axis], p = a.padding[axis];
    const Wide d = a.dilation[axis], op = a.output_padding[axis];
    if (cells < 1 || kernel < 1 || s < 1 || p < 0 || d < 1) return {};
    // Sums and products beyond 64 bits are refused, even if a later term would bring them back into range.
    const Wide most = std::numeric_limits<int64_t>::max(), reach = d * (kernel - 1);
    if (2 * p > most || reach > most) return {};
    if (a.transposed ? (cells - 1) * s + reach + 1 > most : cells + 2 * p > most) return {};
    Wide size;
    if (a.transposed) {
      if (op < 0 || op >= std::max(s, d)) return {};
      size = (cells - 1) * s - 2 * p + d * (kernel - 1) + op + 1;
    } else {
      const Wide room = cells + 2 * p - d * (kernel - 1) - 1;
      size = room < 0 ? 0 : room / s + 1;
    }
    if (size < 1 || size > (int64_t{1} << 40)) return {};
    y.push_back(static_cast<int64_t>(size));
  }
  if (!batched) y.erase(0);
  return y;
}

Tensor call(const Arguments& a, const Tensor& x, const Tensor& w, const Tensor& b) {
  if (a.transposed)
    return conv_transpose3d(x, w, b,
                            {.stride = a.stride,
                             .padding = a.padding,
                             .output_padding = a.output_padding,
                             .groups = a.groups,
                             .dilation = a.dilation});
  return conv3d(x, w, b,
                {.stride = a.stride, .padding = a.padding, .dilation = a.dilation, .groups = a.groups});
}

void compare_with_reference(const Arguments& a, const Tensor& x, const Tensor& w, const Tensor& b,
                            const Tensor& y) {
  const auto grid = [](const Shape& s) {
    return std::array{s[s.rank() - 3], s[s.rank() - 2], s[s.rank() - 1]};
  };
  const int64_t batch = x.rank() == 5 ? x.size(0) : 1, in = x.size(-4), out = y.size(-4);
  const reference::Conv3d r{.batch = batch,
                            .big_channels = a.transposed ? out : in,
                            .small_channels = a.transposed ? in : out,
                            .groups = a.groups,
                            .big = grid(a.transposed ? y.shape() : x.shape()),
                            .small = grid(a.transposed ? x.shape() : y.shape()),
                            .kernel = grid(w.shape()),
                            .stride = array_of(a.stride),
                            .padding = array_of(a.padding),
                            .dilation = array_of(a.dilation)};
  const Values bias = b.defined() ? values(b) : Values();
  const Values exact = a.transposed ? reference::conv_transpose3d(r, values(x), values(w), bias)
                                    : reference::conv3d(r, values(x), values(w), bias);
  ASSERT_EQ(values(y), rounded(exact, y.dtype()));
}

/// Every third call runs the definition.
const char* kernel_of_call(int i) { return i % 3 == 2 ? "direct" : ""; }

/// Mostly f32, which has the most kernels.
DType dtype_of_call(int i) {
  constexpr DType dtypes[] = {f32, bf16, f32, f16};
  return dtypes[i % 4];
}

DEVICE_SUITE(Conv3dFuzz);

TEST_P(Conv3dFuzz, RandomArgumentsAreRefusedOrRight) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const int calls = 10'000;
#else
  const int calls = device().is_cpu() ? 100'000 : 10'000;
#endif
  Source source{{std::mt19937_64(2024)}};
  int accepted = 0, compared = 0;
  for (int i = 0; i < calls; ++i) {
    const Arguments a = draw(source);
    const ForceConv3dKernel only(kernel_of_call(i));
    const Shape expected = expected_shape(a);
    SCOPED_TRACE(str("call ", i, ": input ", a.input, " weight ", a.weight, " stride ", a.stride, " padding ",
                     a.padding, " output_padding ", a.output_padding, " dilation ", a.dilation, " groups ",
                     a.groups, " transposed ", a.transposed, " bias ", a.bias ? a.bias_length : 0, " ",
                     dtype_of_call(i)));
    const auto seed = static_cast<uint64_t>(i);
    const DType dtype = dtype_of_call(i);
    const Tensor x = integer_tensor(a.input, seed, dtype, device());
    const Tensor w = integer_tensor(a.weight, seed + 1, dtype, device());
    const Tensor b = a.bias ? integer_tensor({a.bias_length}, seed + 2, dtype, device()) : Tensor();
    if (expected.empty()) {
      ASSERT_THROW(call(a, x, w, b), Error);
      continue;
    }
    if (numel(expected) > (1 << 20)) continue;
    const Tensor y = call(a, x, w, b);
    ASSERT_EQ(y.shape(), expected);
    ++accepted;
    if (y.numel() * w.numel() > 20'000) continue;
    compare_with_reference(a, x, w, b, y);
    ++compared;
  }
  // Most of the draws are meant to be legal: a kernel that refuses everything must not pass.
  EXPECT_GT(accepted, calls / 3);
  EXPECT_GT(compared, calls / 4);
}

TEST_P(Conv3dFuzz, RandomWeightGrads) {
  Source source{{std::mt19937_64(7)}};
  int accepted = 0;
  const int calls = device().is_cpu() ? 20'000 : 2'000;
  for (int i = 0; i < calls; ++i) {
    const Arguments a = draw(source);
    const ForceConv3dKernel only(kernel_of_call(i));
    const Triple kernel = source.triple(1, 3);
    const Tensor big = integer_tensor(a.input, 1, dtype_of_call(i), device());
    // Mostly a grid that fits, if there is one.
    Shape small{a.input[0], source(1, 2) * std::clamp<int64_t>(a.groups, 1, 3), 1, 1, 1};
    for (int64_t axis = 0; axis < 3; ++axis) {
      const Wide cells = a.input.rank() == 5 ? a.input[2 + axis] : 1;
      const Wide room =
          cells + 2 * Wide(a.padding[axis]) - Wide(a.dilation[axis]) * (Wide(kernel[axis]) - 1) - 1;
      if (a.stride[axis] > 0 && room >= 0 && room < 100 && !source.one_in(20))
        small[2 + axis] = static_cast<int64_t>(room / a.stride[axis] + 1);
    }
    const Tensor s = integer_tensor(small, 2, dtype_of_call(i), device());
    try {
      const Tensor dw = conv3d_weight_grad(
          big, s, kernel,
          {.stride = a.stride, .padding = a.padding, .dilation = a.dilation, .groups = a.groups});
      ASSERT_EQ(dw.shape(), (Shape{small[1], a.input[1] / a.groups, kernel.d, kernel.h, kernel.w}));
      const reference::Conv3d r{a.input[0],
                                a.input[1],
                                small[1],
                                a.groups,
                                {a.input[2], a.input[3], a.input[4]},
                                {small[2], small[3], small[4]},
                                array_of(kernel),
                                array_of(a.stride),
                                array_of(a.padding),
                                array_of(a.dilation)};
      if (dw.numel() * s.numel() < 50'000) {
        ASSERT_EQ(values(dw), rounded(reference::weight_grad(r, values(big), values(s)), dw.dtype()));
      }
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, calls / 5);
}

}  // namespace
}  // namespace vox

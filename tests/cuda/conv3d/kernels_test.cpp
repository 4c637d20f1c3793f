#include <gtest/gtest.h>

#include <voxgrad/core/cuda.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/conv3d_kernels.h>
#include <voxgrad/ops/elementwise.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/support/conv3d_cases.h"
#include "tests/support/devices.h"

// Every kernel of the table, forced by name, on everything that it says it takes: whole numbers in, equality
// with the reference out. Outputs are prefilled with NaN.

namespace vox {
namespace {

using cuda::Conv3dPass;
using testing::Values;
using testing::values;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr Conv3dPass passes[]{Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad};
constexpr auto high = Float32Precision::high;

const char* name_of(Conv3dPass pass) {
  return pass == Conv3dPass::conv3d        ? "conv3d"
         : pass == Conv3dPass::weight_grad ? "weight_grad"
                                           : "transpose";
}

/// What a kernel is tried with.
struct Mode {
  std::string_view kernel;
  DType dtype = f32;
  Float32Precision precision = high;
};

std::vector<Mode> modes() {
  std::vector<Mode> all;
  for (const std::string_view name : cuda::conv3d_kernel_names()) {
    if (name.ends_with("_bf16")) {
      all.push_back({name, f32, Float32Precision::medium});
      all.push_back({name, bf16});
    } else if (name.ends_with("_f16")) {
      all.push_back({name, f16});
    } else if (name == "few_channels") {
      all.push_back({name, f32, Float32Precision::highest});
      all.push_back({name, bf16});
      all.push_back({name, f16});
    } else if (name.ends_with("_split") || name.ends_with("_f16x3")) {
      all.push_back({name, f32, Float32Precision::highest});
    } else {
      all.push_back({name});
    }
  }
  return all;
}

/// Whether it is for cells that step by one, with few taps along d, alone.
bool rolls(std::string_view kernel) { return kernel.starts_with("rolling_wgmma"); }

class KernelTest : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    if (!testing::has_cuda()) GTEST_SKIP() << "no CUDA device";
  }
  static std::string_view kernel() { return GetParam().kernel; }
  static DType dtype() { return GetParam().dtype; }
  static Float32Precision precision() { return GetParam().precision; }
  static TensorOptions options() { return {.dtype = dtype(), .device = Device::cuda()}; }
  static bool takes(Conv3dPass pass, const Conv3dGeometry& g) {
    return cuda::conv3d_kernel_takes(kernel(), {pass, g, dtype(), precision()});
  }
};

auto kernels() { return ::testing::ValuesIn(modes()); }
std::string kernel_name(const ::testing::TestParamInfo<Mode>& info) {
  const Mode& m = info.param;
  const bool of_f32 = m.kernel.ends_with("_bf16") && m.dtype == f32;
  const bool of_16_bits = m.kernel == "few_channels" && m.dtype != f32;
  return std::string(m.kernel) + (of_f32 ? "_of_f32" : of_16_bits ? "_of_" + str(m.dtype) : "");
}

/// A copy that begins `offset` elements into a buffer, which ends with it.
Tensor moved_by(int64_t offset, const Tensor& x) {
  Tensor view =
      empty({x.numel() + offset}, x.options()).slice(0, offset, offset + x.numel()).reshape(x.shape());
  view.copy_(x);
  return view;
}

/// The contraction of two operands (big, small, weight in this order, less the one computed) by one kernel.
/// The result begins `offset` elements into its buffer.
Tensor run(const Mode& mode, Conv3dPass pass, const Tensor& a, const Tensor& b, const Tensor& bias,
           const Conv3dGeometry& g, int64_t offset = 0) {
  const cuda::ForceConv3dKernel only(mode.kernel);
  const Float32Precision precision = mode.precision;
  const auto allocate = [&](const Shape& shape) { return moved_by(offset, full(shape, nan, a.options())); };
  if (pass == Conv3dPass::conv3d) {
    Tensor small = allocate(g.small_shape());
    cuda::conv3d(a, b, bias, small, g, precision);
    return small;
  }
  if (pass == Conv3dPass::conv_transpose3d) {
    Tensor big = allocate(g.big_shape());
    cuda::conv_transpose3d(a, b, bias, big, g, precision);
    return big;
  }
  Tensor dweight = allocate(g.weight_shape()), no_bias;
  cuda::conv3d_weight_grad(a, b, dweight, no_bias, Grid::small, g, precision);
  return dweight;
}

Values reference_of(Conv3dPass pass, const reference::Conv3d& r, const Values& a, const Values& b,
                    const Values& bias = {}) {
  if (pass == Conv3dPass::conv3d) return reference::conv3d(r, a, b, bias);
  if (pass == Conv3dPass::conv_transpose3d) return reference::conv_transpose3d(r, a, b, bias);
  return reference::weight_grad(r, a, b);
}

struct Shapes {
  Shape a, b;
  int64_t bias;
};
Shapes shapes_of(Conv3dPass pass, const Conv3dGeometry& g) {
  if (pass == Conv3dPass::conv3d) return {g.big_shape(), g.weight_shape(), g.small_channels};
  if (pass == Conv3dPass::conv_transpose3d) return {g.small_shape(), g.weight_shape(), g.big_channels};
  return {g.big_shape(), g.small_shape(), 0};
}

/// Operands and result begin `offset` elements into their buffers.
void compare(const Mode& mode, Conv3dPass pass, const Conv3dGeometry& g, bool with_bias, int64_t offset = 0) {
  const Shapes shapes = shapes_of(pass, g);
  const Values a = testing::integers(testing::numel(shapes.a), 1),
               b = testing::integers(testing::numel(shapes.b), 2);
  const Values bias = with_bias ? testing::integers(shapes.bias, 3) : Values();
  const auto on_gpu = [&](const Values& v, const Shape& shape) {
    return moved_by(offset, testing::tensor(v, shape, mode.dtype, Device::cuda()));
  };
  const Tensor y = run(mode, pass, on_gpu(a, shapes.a), on_gpu(b, shapes.b),
                       bias.empty() ? Tensor() : on_gpu(bias, {shapes.bias}), g, offset);
  const Values exact = reference_of(pass, testing::reference_of(g), a, b, bias);
  EXPECT_TRUE(values(y) == testing::rounded(exact, mode.dtype))
      << name_of(pass) << ": big " << g.big_shape() << " small " << g.small_shape() << " weight "
      << g.weight_shape() << " groups " << g.groups << " stride " << g.stride << " padding " << g.padding
      << " dilation " << g.dilation << (with_bias ? " bias" : "") << " offset " << offset;
}

// ---- Whole numbers ----------------------------------------------------------------------------------------

class Conv3dKernelsCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, Conv3dKernelsCuda, kernels(), kernel_name);

TEST_P(Conv3dKernelsCuda, RealCasesEqualTheReference) {
  int compared[3] = {};  // by pass
  for (const testing::RealCase& c : testing::read_cases()) {
    if (!c.legal || c.large()) continue;
    SCOPED_TRACE(c.id);
    const Conv3dGeometry g = c.geometry();
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, g)) continue;
      compare(GetParam(), pass, g, c.bias);
      ++compared[static_cast<int>(pass)];
    }
  }
  // A kernel is for one pass at least, and takes most geometries, or most of those that it is for.
  EXPECT_GT(std::ranges::max(compared), rolls(kernel()) ? 60 : 150);
  for (const int n : compared)  // of 108 without a stride, or of 253
    EXPECT_TRUE(n == 0 || n > (rolls(kernel()) ? 60 : 80)) << n;
}

// `direct` is compared with the reference at samples in tests/ops/conv3d_cases_test.cpp.
TEST_P(Conv3dKernelsCuda, LargeRealCasesEqualDirect) {
  if (kernel() == "direct") GTEST_SKIP() << "direct is what the others are compared with here";
  for (const testing::RealCase& c : testing::read_cases()) {
    if (!c.legal || !c.large()) continue;
    const Conv3dGeometry g = c.geometry();
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, g)) continue;
      const Shapes shapes = shapes_of(pass, g);
      const Tensor a = randint(-4, 5, shapes.a, options()), b = randint(-4, 5, shapes.b, options());
      // Not their difference: sums over millions of cells may be beyond f16, Inf in both.
      const Tensor differs =
          ne(run(GetParam(), pass, a, b, {}, g), run(Mode{"direct", dtype()}, pass, a, b, {}, g));
      EXPECT_EQ(differs.to(f32).max().item<float>(), 0) << c.id << ' ' << name_of(pass);
    }
  }
}

/// Channel counts on both sides of every tile, geometries of every kind, or those that roll.
std::optional<Conv3dGeometry> random_geometry(std::mt19937_64& random, bool rolling) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto triple = [&](int64_t low, int64_t high) {
    return Triple{between(low, high), between(low, high), between(low, high)};
  };
  constexpr int64_t channels[]{1, 3, 7, 8, 9, 16, 17, 24, 25, 33, 48, 65, 72, 130};
  const auto some = [&] { return channels[random() % std::size(channels)]; };
  const int64_t groups = between(0, 2) == 0 ? between(1, 3) : 1;
  const int64_t in = some() * groups, out = some();
  const Shape input{between(1, 3), in, between(1, 5), between(1, 7), between(1, 9)};
  Triple kernel = Triple{between(1, 3), between(1, 4), between(1, 11)}, stride = triple(1, 4),
         padding = triple(0, 2), dilation = triple(1, 3);
  if (rolling) {
    constexpr int64_t taps[]{2, 3, 5};
    kernel.d = taps[random() % std::size(taps)];
    stride = 1;
    dilation.d = 1;
  }
  try {
    const Triple output_padding{between(0, std::max(stride.d, dilation.d) - 1), 0,
                                between(0, std::max(stride.w, dilation.w) - 1)};
    return detail::conv_transpose3d_geometry("random", input, {in, out, kernel.d, kernel.h, kernel.w},
                                             {stride, padding, output_padding, groups, dilation});
  } catch (const ShapeError&) {  // padding crops everything
    return std::nullopt;
  }
}

TEST_P(Conv3dKernelsCuda, RandomGeometriesEqualTheReference) {
  std::mt19937_64 random(11);
  int compared = 0;
  for (int i = 0; i < 4000 && compared < 300; ++i) {
    const auto g = random_geometry(random, rolls(kernel()));
    const bool bias = random() % 2 == 0;
    if (!g || static_cast<double>(g->batch * g->small_channels * g->small_cells()) *
                      static_cast<double>(g->big_per_group() * g->taps()) >
                  2e7)
      continue;
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, *g)) continue;
      compare(GetParam(), pass, *g, bias);
      ++compared;
    }
  }
  EXPECT_GE(compared, 300);
}

/// Few channels a group, as few as one on either side; rows, columns and depths of more than one tile.
std::optional<Conv3dGeometry> random_narrow_geometry(std::mt19937_64& random, bool rolling) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto triple = [&](int64_t low, int64_t high) {
    return Triple{between(low, high), between(low, high), between(low, high)};
  };
  constexpr int64_t channels[]{1, 1, 1, 2, 3, 4, 5, 8, 9, 16};
  const auto some = [&] { return channels[random() % std::size(channels)]; };
  const int64_t groups = between(1, 5), in = some() * groups, out = some();
  const Shape input{between(1, 2), in, between(1, 19), between(1, 21), between(1, 70)};
  Triple kernel = triple(1, 5), stride = triple(1, 3), padding = triple(0, 2), dilation = triple(1, 2);
  if (between(0, 1) == 0) dilation = 1;
  if (between(0, 2) == 0) stride = 2;
  if (rolling) stride = 1, dilation.d = 1, kernel.d = 3;
  try {
    const Triple output_padding{0, between(0, std::max(stride.h, dilation.h) - 1),
                                between(0, std::max(stride.w, dilation.w) - 1)};
    return detail::conv_transpose3d_geometry("random", input, {in, out, kernel.d, kernel.h, kernel.w},
                                             {stride, padding, output_padding, groups, dilation});
  } catch (const ShapeError&) {  // padding crops everything
    return std::nullopt;
  }
}

TEST_P(Conv3dKernelsCuda, GroupsOfFewChannelsEqualTheReference) {
  std::mt19937_64 random(12);
  int compared = 0;
  for (int i = 0; i < 4000 && compared < 200; ++i) {
    const auto g = random_narrow_geometry(random, rolls(kernel()));
    const bool bias = random() % 2 == 0;
    if (!g || static_cast<double>(g->batch * g->small_channels * g->small_cells()) *
                      static_cast<double>(g->big_per_group() * g->taps()) >
                  4e6)
      continue;
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, *g)) continue;
      compare(GetParam(), pass, *g, bias);
      ++compared;
    }
  }
  EXPECT_GE(compared, 200);
}

// R7: offsets beyond 32 bits, in a batch and in one volume.
TEST_P(Conv3dKernelsCuda, MoreThanTwoTo32OutputsAtSamples) {
  const Device device = Device::cuda();
  for (const Shape& shape : {Shape{5, 1, 512, 1024, 1024}, Shape{1, 1, 2049, 1024, 1024}}) {
    const Conv3dGeometry g =
        detail::conv_transpose3d_geometry("large", shape, {1, 1, 2, 1, 1}, {.stride = {2, 1, 1}});
    if (!takes(Conv3dPass::conv_transpose3d, g)) continue;
    const Tensor x = randint(-4, 5, shape, options());
    const Tensor w = testing::tensor({3, -2}, {1, 1, 2, 1, 1}, dtype(), device);
    const Tensor y =
        run(GetParam(), Conv3dPass::conv_transpose3d, x, w, testing::tensor({1}, {1}, dtype(), device), g);
    const Mode back_by = takes(Conv3dPass::conv3d, g) ? GetParam() : Mode{"direct", dtype()};
    const Tensor back = run(back_by, Conv3dPass::conv3d, y, w, {}, g);
    std::mt19937_64 random(1);
    const auto at = [](const Tensor& t, int64_t i) {
      return t.reshape({t.numel()}).select(0, i).to(f32).item<float>();
    };
    const int64_t row = 1024 * 1024;
    for (int i = 0; i < 60; ++i) {
      const int64_t j = i == 0 ? 0 : i == 1 ? x.numel() - 1 : static_cast<int64_t>(random() % x.numel());
      const int64_t first = j / row * 2 * row + j % row;
      EXPECT_EQ(at(y, first), at(x, j) * 3 + 1) << j;
      EXPECT_EQ(at(y, first + row), at(x, j) * -2 + 1) << j;
      EXPECT_EQ(at(back, j), 13 * at(x, j) + 1) << j;
    }
  }
}

TEST_P(Conv3dKernelsCuda, MoreThanTwoTo31OutputsOfUnitSteps) {
  const Device device = Device::cuda();
  const int64_t depths = 128, row = 1024 * 1024;
  const Conv3dGeometry g =
      detail::conv_transpose3d_geometry("large", {20, 1, depths, 1024, 1024}, {1, 1, 2, 1, 1}, {});
  if (dtype() != f32 || !takes(Conv3dPass::conv_transpose3d, g)) return;
  const Tensor x = randint(-4, 5, g.small_shape(), {.device = device});
  const Tensor w = testing::tensor({3, -2}, {1, 1, 2, 1, 1}, f32, device);
  const Tensor one = testing::tensor({1}, {1}, f32, device);
  const Tensor y = run(GetParam(), Conv3dPass::conv_transpose3d, x, w, one, g);
  const Mode back_by = takes(Conv3dPass::conv3d, g) ? GetParam() : Mode{"direct"};
  const Tensor back = run(back_by, Conv3dPass::conv3d, y, w, {}, g);
  std::mt19937_64 random(1);
  const auto at = [](const Tensor& t, int64_t i) {
    return t.reshape({t.numel()}).select(0, i).item<float>();
  };
  for (int i = 0; i < 60; ++i) {
    const int64_t j = i == 0 ? 0 : i == 1 ? x.numel() - 1 : static_cast<int64_t>(random() % x.numel());
    const int64_t d = j / row % depths, out = j + j / (depths * row) * row;
    EXPECT_EQ(at(y, out), 3 * at(x, j) - (d > 0 ? 2 * at(x, j - row) : 0) + 1) << j;
    EXPECT_EQ(at(back, j), 3 * at(y, out) - 2 * at(y, out + row)) << j;
  }
}

// ---- Bits and errors --------------------------------------------------------------------------------------

const testing::TransposeCase tiled{"tiled",   2,         40,        24, {9, 10, 11}, {3, 2, 4}, {2, 1, 2},
                                   {1, 0, 1}, {1, 0, 0}, {1, 2, 1}, 2};
const testing::TransposeCase rolled{"rolled",  2, 40,        24, {9, 20, 21}, {3, 2, 4}, {1, 1, 1},
                                    {1, 0, 1}, 0, {1, 2, 1}, 2};

/// What every kernel is asked.
const testing::TransposeCase& case_for(bool rolling) { return rolling ? rolled : tiled; }

TEST_P(Conv3dKernelsCuda, SameBitsOnEveryRunAndStream) {
  const Conv3dGeometry g = case_for(rolls(kernel())).geometry();
  for (const Conv3dPass pass : passes) {
    if (!takes(pass, g)) continue;
    const Shapes shapes = shapes_of(pass, g);
    const Tensor a = randn(shapes.a, options()), b = randn(shapes.b, options());
    const Values first = values(run(GetParam(), pass, a, b, {}, g));
    for (const double v : first) ASSERT_FALSE(std::isnan(v));
    cuda::Stream side;
    side.wait(cuda::current_stream());
    for (int i = 0; i < 20; ++i) {
      std::optional<cuda::StreamGuard> guard;
      if (i % 2) guard.emplace(side);
      EXPECT_TRUE(values(run(GetParam(), pass, a, b, {}, g)) == first) << name_of(pass) << ' ' << i;
    }
  }
}

/// |y - y64| relative to |y64|, Frobenius.
double relative_error(const Values& y, const Values& exact) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    error += (y[i] - exact[i]) * (y[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

// Both operands rounded to nearest TF32 give 2.9e-4 on normal data, truncated ones 7.5e-4; bf16 gives 2.3e-3.
// 16-bit tensors hold their operands; their results are rounded.
TEST_P(Conv3dKernelsCuda, NormalDataIsAsAccurateAsItsPrecision) {
  const Conv3dGeometry g = case_for(rolls(kernel())).geometry();
  for (const Conv3dPass pass : passes) {
    if (!takes(pass, g)) continue;
    const Shapes shapes = shapes_of(pass, g);
    const Tensor a = randn(shapes.a, options()), b = randn(shapes.b, options());
    const Values exact = reference_of(pass, testing::reference_of(g), values(a), values(b));
    const double error = relative_error(values(run(GetParam(), pass, a, b, {}, g)), exact);
    const bool as_f32 = kernel() == "direct" || precision() == Float32Precision::highest;
    const double limit = as_f32                                                       ? 1e-6
                         : dtype() == bf16 || precision() == Float32Precision::medium ? 5e-3
                                                                                      : 6e-4;
    EXPECT_LT(error, limit) << name_of(pass);
    EXPECT_GT(error, 0) << name_of(pass);
  }
}

// R8 below `highest`: what a non-finite value touches is never finite; operands other than the weight reach
// nothing else. At `highest` the result is that of f32 arithmetic.
TEST_P(Conv3dKernelsCuda, NonFiniteValuesAreNeverLost) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<testing::TransposeCase> cases = testing::awkward_cases();
  cases.push_back({"rolled", 1, 9, 10, {3, 4, 5}, {3, 2, 2}, 1, {1, 0, 1}, 0, {1, 1, 2}, 1});
  // Both phases along w are multiplied by a zero where one of them has no tap.
  cases.push_back({"zeros", 1, 5, 20, {3, 4, 70}, 3, 2, 1, 1, 1, 1});
  cases.push_back({"zeros first", 1, 5, 20, {2, 3, 5}, {2, 2, 3}, 2, 0, 0, 1, 1});
  for (const testing::TransposeCase& c : cases) {
    const Conv3dGeometry g = c.geometry();
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, g)) continue;
      const Shapes shapes = shapes_of(pass, g);
      for (const double bad : {inf, -inf, nan}) {
        for (const bool in_first : {true, false}) {
          Values a = testing::integers(testing::numel(shapes.a), 1);
          Values b = testing::integers(testing::numel(shapes.b), 2);
          Values& operand = in_first ? a : b;
          operand[operand.size() / 3] = bad;
          const Tensor y = run(GetParam(), pass, testing::tensor(a, shapes.a, dtype(), Device::cuda()),
                               testing::tensor(b, shapes.b, dtype(), Device::cuda()), {}, g);
          const Values got = values(y), expected = testing::rounded(
                                            reference_of(pass, testing::reference_of(g), a, b), dtype());
          for (size_t i = 0; i < got.size(); ++i) {
            const std::string where = str(c.name, ' ', name_of(pass), ' ', bad, " at ", i);
            if (precision() == Float32Precision::highest) {
              ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) << where;
            } else if (!std::isfinite(expected[i])) {
              ASSERT_FALSE(std::isfinite(got[i])) << where;
            } else if (in_first) {
              ASSERT_EQ(got[i], expected[i]) << where;
            }
          }
        }
      }
    }
  }
}

// ---- One small geometry per edge, for compute-sanitizer ---------------------------------------------------

class Conv3dKernelsSanitizeCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, Conv3dKernelsSanitizeCuda, kernels(), kernel_name);

TEST_P(Conv3dKernelsSanitizeCuda, EveryEdge) {
  std::vector<Conv3dGeometry> geometries;
  for (const auto& c : testing::awkward_cases()) geometries.push_back(c.geometry());
  // One for each width of a tile of channels, and several tiles of cells.
  for (const int64_t out : {8, 16, 24, 31, 48, 64, 70})
    geometries.push_back(detail::conv_transpose3d_geometry("widths", {2, 9, 3, 5, 7}, {9, out, 2, 3, 1},
                                                           {.stride = {1, 2, 1}, .padding = {0, 1, 0}}));
  // Taps along W: more than share a tile, and so far apart that none do.
  for (const auto& [taps, dilation, stride] : {Triple(8, 1, 1), Triple(9, 1, 1), Triple(3, 4, 1),
                                               Triple(3, 5, 1), Triple(2, 9, 1), Triple(19, 1, 2)})
    geometries.push_back(detail::conv_transpose3d_geometry(
        "taps", {2, 3, 1, 2, 5}, {3, 4, 1, 2, taps},
        {.stride = {1, 1, stride}, .padding = {0, 0, taps / 2}, .dilation = {1, 1, dilation}}));
  // The flat product: more depths than a tile has, and a rest; two blocks of channels; taps along d in
  // several groups, and far apart; rows so long that a window holds one row of taps.
  const auto flat = [&](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    geometries.push_back(detail::conv_transpose3d_geometry("flat", input, weight, options));
  };
  flat({1, 9, 14, 3, 4}, {9, 17, 3, 2, 3}, {.padding = {1, 0, 2}});
  flat({3, 3, 9, 4, 5}, {3, 24, 3, 3, 3}, {});
  flat({2, 17, 5, 3, 4}, {17, 72, 2, 2, 2}, {});
  flat({1, 4, 3, 3, 3}, {4, 40, 5, 2, 1}, {});
  flat({1, 4, 5, 3, 3}, {4, 8, 4, 1, 2}, {.dilation = {3, 2, 1}});
  flat({1, 3, 2, 5, 300}, {3, 5, 2, 3, 3}, {});
  flat({2, 3, 2, 3, 180}, {3, 5, 1, 5, 2}, {.padding = {0, 2, 1}});
  // Strides with more taps than fit shared memory at once (strided_plan_test.cpp says which are cut how).
  flat({1, 17, 4, 5, 9}, {17, 32, 5, 5, 5}, {.stride = 2, .padding = 2});
  flat({1, 9, 3, 4, 5}, {9, 16, 7, 7, 7}, {.stride = 2, .padding = 3});
  flat({1, 33, 3, 4, 20}, {33, 48, 7, 7, 5}, {.stride = {2, 2, 1}, .padding = {3, 3, 0}});
  // Both phases along w in one product: rows that a tile has whole, rows of several tiles and of a few cells,
  // that begin with the second phase, that step by one along d and h; groups.
  flat({1, 9, 2, 5, 64}, {9, 32, 3, 3, 3}, {.stride = 2, .padding = 1});
  flat({1, 9, 2, 2, 200}, {9, 32, 2, 3, 4}, {.stride = 2, .padding = {0, 1, 1}});
  flat({2, 8, 3, 5, 3}, {8, 24, 3, 4, 4}, {.stride = 2, .padding = {1, 2, 1}, .output_padding = 1});
  flat({1, 17, 2, 7, 33}, {17, 32, 1, 1, 5}, {.stride = {1, 1, 2}, .padding = {0, 0, 2}});
  flat({1, 20, 9, 40, 128}, {20, 31, 2, 1, 3}, {.stride = {2, 1, 2}, .padding = {0, 0, 1}, .groups = 2});
  // Steps of 3 and 4: three phases along w, four, and two that are alive.
  flat({2, 9, 3, 4, 7}, {9, 16, 4, 3, 5}, {.stride = 3, .padding = 1});
  flat({1, 24, 2, 3, 20}, {24, 17, 4, 5, 4}, {.stride = 4});
  flat({1, 8, 2, 3, 5}, {8, 8, 1, 2, 2}, {.stride = {1, 3, 4}});
  // Gathered cells: each of their tiles (blocks of channels, depths that a plane serves), with planes, rows
  // and columns outside, tiles that cut rows, and rows that begin anywhere.
  for (const int64_t taps : {1, 3, 5})
    for (const int64_t in : {16, 32, 48, 64})
      flat({2, in, 2, 7, 21}, {in, 8, taps, 3, 2}, {.stride = 2, .padding = {taps / 2, 1, 0}});
  flat({1, 70, 3, 3, 3}, {70, 19, 3, 3, 3}, {.stride = {2, 3, 1}, .padding = 1, .dilation = {2, 1, 2}});
  flat({1, 17, 5, 2, 130}, {17, 16, 2, 5, 5}, {.stride = {3, 1, 2}, .padding = {0, 2, 2}});
  flat({2, 9, 7, 5, 33}, {9, 50, 3, 3, 5}, {.padding = {3, 0, 5}, .dilation = {1, 2, 1}});
  // Sums that roll along d: each of their tiles, and planes outside the input.
  for (const int64_t taps : {2, 3, 5})
    for (const int64_t out : {16, 24, 32, 48, 64})
      flat({2, 9, 4, 5, 6}, {9, out, taps, 2, 3}, {.padding = {1, 0, 1}});
  flat({1, 8, 4, 12, 13}, {8, 17, 3, 3, 3}, {.padding = {2, 1, 1}, .dilation = {1, 2, 3}});
  // Few channels: each number of taps along h and step that a thread keeps in registers, and others; rows of
  // several tiles; each block of channels.
  for (const int64_t taps : {1, 2, 3, 4, 5, 6})
    for (const int64_t stride : {1, 2, 3})
      flat({1, 3, 3, 11, 9}, {3, 1, 2, taps, 3},
           {.stride = stride, .padding = {0, taps / 2, 1}, .groups = 3});
  flat({2, 4, 2, 9, 70}, {4, 1, 3, 3, 3}, {.padding = 1, .groups = 4});
  flat({1, 1, 5, 17, 150}, {1, 2, 3, 3, 2}, {.stride = {1, 1, 2}});
  for (const int64_t out : {2, 3, 5, 9})
    flat({1, 4, 3, 5, 6}, {4, out, 3, 2, 3}, {.stride = {2, 1, 2}, .groups = 2});
  for (const Conv3dGeometry& g : geometries) {
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, g)) continue;
      compare(GetParam(), pass, g, false);
      compare(GetParam(), pass, g, pass != Conv3dPass::weight_grad);
    }
  }
}

// Numbers of 16 bits are read and written as words where they can be: rows that begin at odd elements, since
// their length, a plane's, a channel's or the tensor's offset is odd; rows of one cell; padding that puts a
// word across two rows of the kernel's numbering, cropping that cuts one; cells two apart.
TEST_P(Conv3dKernelsSanitizeCuda, RowsThatBeginAnywhere) {
  const auto geometry = [&](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    return detail::conv_transpose3d_geometry("words", input, weight, options);
  };
  const Conv3dGeometry geometries[]{
      geometry({2, 9, 4, 4, 32}, {9, 17, 3, 3, 3}, {}),             // even everywhere
      geometry({2, 9, 3, 4, 32}, {9, 8, 3, 3, 3}, {.padding = 1}),  // taps from -1 on
      geometry({3, 9, 3, 3, 31}, {9, 8, 1, 2, 2}, {}),              // odd rows and planes
      geometry({3, 9, 3, 4, 31}, {9, 8, 1, 2, 2}, {}),              // odd rows, even planes
      geometry({2, 17, 3, 3, 16}, {17, 24, 1, 1, 2}, {}),           // a pitch put up to an even one
      geometry({3, 8, 5, 7, 1}, {8, 40, 3, 2, 1}, {}),              // rows of one cell
      geometry({3, 8, 3, 1, 1}, {8, 8, 2, 1, 1}, {}),               // planes of one cell
      geometry({2, 8, 3, 5, 2}, {8, 64, 1, 2, 1}, {}),              // rows of one word
      geometry({2, 8, 4, 3, 18}, {8, 8, 1, 1, 1}, {}),              // no zeros between rows and images
      geometry({2, 8, 3, 9, 20}, {8, 8, 1, 2, 3}, {.padding = {0, 2, 3}}),  // cropped by an odd number
      geometry({2, 8, 3, 9, 20}, {8, 8, 1, 2, 3}, {.padding = {0, 2, 4}}),  // by an even one
      geometry({2, 8, 3, 4, 18}, {8, 8, 2, 3, 4}, {.stride = {1, 1, 2}, .padding = {0, 1, 1}}),
      geometry({1, 16, 3, 4, 22}, {16, 8, 3, 2, 3}, {.groups = 2, .dilation = {1, 2, 3}}),
      geometry({1, 8, 2, 5, 300}, {8, 8, 2, 3, 3}, {.padding = {0, 0, 1}}),  // a window of one row of taps
      geometry({2, 8, 3, 4, 18}, {8, 17, 2, 2, 3}, {.stride = 2, .dilation = 2}),  // phases without taps
      geometry({1, 8, 2, 21, 37}, {8, 8, 1, 1, 1}, {.stride = 2}),                 // and tiles that cut rows
      // Both phases along w in one product; the third begins with the second.
      geometry({1, 8, 2, 3, 64}, {8, 31, 2, 2, 3}, {.stride = 2, .padding = {0, 0, 1}}),
      geometry({1, 8, 2, 5, 35}, {8, 32, 1, 2, 3}, {.stride = {1, 2, 2}}),
      geometry({1, 8, 2, 3, 66}, {8, 32, 2, 2, 4}, {.stride = 2, .padding = {0, 1, 1}}),
  };
  for (const Conv3dGeometry& g : geometries)
    for (const Conv3dPass pass : passes)
      for (const int64_t offset : {0, 1, 2, 3})
        if (takes(pass, g))
          compare(GetParam(), pass, g, offset % 2 == 1 && pass != Conv3dPass::weight_grad, offset);
}

}  // namespace
}  // namespace vox

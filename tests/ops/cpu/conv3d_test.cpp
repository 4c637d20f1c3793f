#include <voxgrad/ops/conv3d_kernel.h>
#include <voxgrad/ops/conv3d_recorded.h>
#include <voxgrad/ops/kernels.h>

#include "tests/support/conv3d.h"
#include "tests/support/test.h"

// The kernels on tiles against the definition, on grids of many tiles: inputs are whole numbers, so results
// are equal. CTest runs these once for each instruction set.

namespace vox {
namespace {

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

const std::vector<TransposeCase> cases{
    {"16 to 16, 3^3", 2, 16, 16, {12, 13, 14}, 3, 1, 1, 0, 1, 1},
    {"upsample 4^3 s2", 2, 16, 8, {9, 10, 11}, 4, 2, 1, 0, 1, 1},
    {"one channel", 1, 1, 16, {17, 16, 15}, 3, 1, 1, 0, 1, 1},
    {"to one channel", 1, 16, 1, {17, 16, 15}, 3, 1, 1, 0, 1, 1},
    {"many channels", 1, 150, 70, {4, 3, 5}, {2, 3, 2}, {2, 1, 2}, {0, 1, 0}, 0, 1, 1},
    {"depthwise", 2, 12, 12, {8, 7, 9}, 3, {1, 2, 1}, 1, 0, {1, 1, 2}, 12},
    {"stride beyond the kernel", 1, 3, 4, {5, 6, 7}, {2, 1, 2}, {5, 3, 4}, 0, {4, 2, 1}, 1, 1},
    {"many taps", 1, 2, 2, {4, 5, 6}, {9, 11, 10}, {2, 1, 3}, {3, 2, 4}, {1, 0, 2}, 1, 1},
    {"a tile of one row", 1, 2, 3, {1, 1, 700}, {1, 1, 5}, {1, 1, 2}, {0, 0, 2}, {0, 0, 1}, 1, 1},
    {"cropped to the halo", 1, 2, 2, {3, 3, 3}, 2, 1, {1, 1, 1}, 0, 1, 1},
    {"rows with shared zeros, in segments", 1, 3, 10, {5, 9, 80}, {3, 5, 3}, 1, {1, 2, 1}, 0, 1, 1},
    {"a full correlation", 1, 5, 11, {4, 6, 64}, {3, 5, 7}, 1, 0, 0, 1, 1},
    {"rows longer than a tile", 2, 3, 5, {2, 3, 300}, {1, 2, 4}, {1, 1, 2}, {0, 1, 1}, 0, {1, 1, 3}, 1},
    {"taps further apart than the row", 1, 3, 4, {6, 7, 8}, 3, 1, {9, 10, 11}, 0, {9, 10, 11}, 1},
    {"channels in chunks", 1, 12, 1030, {2, 3, 33}, {2, 3, 3}, {1, 2, 2}, {0, 1, 1}, 0, 1, 1},
    {"weights of several megabytes", 1, 256, 192, {3, 3, 3}, 3, 1, 1, 0, 1, 1},
    {"1x1x1", 2, 40, 24, {3, 20, 30}, 1, 1, 0, 0, 1, 1},
    {"strides close to the end of 64 bits", 1, 2, 3, 1, 3, {huge, huge - 2, huge - 1}, 1, 0, 1, 1},
    {"one such stride", 1, 2, 3, {2, 3, 1}, 3, {1, 1, huge}, 1, 0, 1, 1},
    {"pairs of outputs, odd rows", 1, 32, 48, {6, 13, 11}, 3, 1, {1, 0, 2}, 0, 1, 1},
    {"pairs, dilated in D, groups", 2, 64, 64, {7, 9, 16}, {2, 3, 3}, 1, 1, 0, {2, 1, 1}, 2},
    {"pairs in tiles", 1, 32, 32, {16, 64, 68}, {1, 3, 3}, 1, {0, 1, 1}, 0, 1, 1},
    {"pairs, many taps along D", 1, 32, 32, {9, 8, 8}, {10, 3, 3}, 1, {4, 1, 1}, 0, 1, 1},
    {"pairs, planes in no phase", 1, 32, 32, {1, 32, 32}, 3, {2, 1, 1}, 1, 0, 1, 1},
    {"more phases than are kept at a time", 1, 3, 4, {2, 3, 3}, {1, 2, 70}, {1, 1, 70}, 0, 0, 1, 1},
    {"rows cut into whole vectors", 1, 16, 16, {1, 1, 12288}, {1, 1, 3}, 1, {0, 0, 1}, 0, 1, 1},
    {"one by one", 1, 1, 1, {1, 1, 1}, 1, 1, 0, 0, 1, 1},
    {"more taps than a tile holds", 1, 1, 2, {2, 2, 2}, {16, 17, 16}, 1, 0, 0, 1, 1},
};

class Conv3dCpu : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(, Conv3dCpu, ::testing::Values(f32, f64),
                         [](const auto& info) { return to_string(info.param); });

constexpr auto highest = Float32Precision::highest;

/// What f(y) makes of y by one kernel, or by the chosen one; nothing if the kernel does not support it.
std::optional<Tensor> by(const char* kernel, const Shape& shape, DType dtype, const auto& f) {
  const ForceConv3dKernel only(kernel);
  Tensor y = full(shape, nan, {.dtype = dtype});
  try {
    f(y);
  } catch (const ValueError&) {
    return std::nullopt;
  }
  return y;
}

TEST_P(Conv3dCpu, AllKernelsEqualTheDirectOne) {
  std::map<std::string, int> supported;
  for (const TransposeCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Conv3dGeometry g = c.geometry();
    const Tensor big = integer_tensor(g.big_shape(), 1, GetParam());
    const Tensor small = integer_tensor(g.small_shape(), 2, GetParam());
    const Tensor weight = integer_tensor(g.weight_shape(), 3, GetParam());
    const Tensor bias_small = integer_tensor({g.small_channels}, 4, GetParam());
    const Tensor bias_big = integer_tensor({g.big_channels}, 5, GetParam());
    const auto compare = [&](const Shape& shape, const auto& f) {
      const Values expected = values(by("direct", shape, GetParam(), f).value());
      for (const char* kernel : {"", "tiled", "winograd"}) {
        const auto got = by(kernel, shape, GetParam(), f);
        if (got) ++supported[kernel];
        EXPECT_TRUE(!got || values(*got) == expected) << kernel;
      }
    };
    compare(g.small_shape(), [&](Tensor& y) { cpu::conv3d(big, weight, bias_small, y, g, highest); });
    compare(g.big_shape(), [&](Tensor& y) { cpu::conv_transpose3d(small, weight, bias_big, y, g, highest); });
    compare(g.weight_shape(), [&](Tensor& dw) {
      Tensor none;
      cpu::conv3d_weight_grad(big, small, dw, none, Grid::big, g, highest);
    });
  }
  const auto all = static_cast<int>(3 * cases.size());
  EXPECT_EQ(supported[""], all);
  EXPECT_EQ(supported["tiled"], all);
  EXPECT_GE(supported["winograd"], 10);
}

TEST(Conv3dCpuKernels, WhatCannotBeForcedIsAnError) {
  const Tensor x = ones({1, 2, 3, 3, 3}), weight = ones({2, 2, 1, 1, 1});
  for (const char* kernel : {"fast", "winograd"}) {
    const ForceConv3dKernel outer("direct"), only(kernel, {Conv3dPass::conv3d});
    EXPECT_THROW((void)conv3d(x, weight), ValueError);
    EXPECT_NO_THROW((void)conv_transpose3d(x, weight));
  }
  EXPECT_NO_THROW((void)conv3d(x, weight));
}

// Objects of a thread are destroyed in the reverse order of their creation, so this one computes when the
// memory that the thread's first convolution asked for is free.
TEST(Conv3dCpuThread, DestructorsOfAThreadMayCompute) {
  const Tensor x = ones({2, 16, 12, 12, 12}), weight = ones({16, 16, 3, 3, 3});
  const auto sums = [&] { return values(conv3d(x, weight, {}, {.padding = 1})); };
  const auto expected = sums();
  bool equal = false;
  std::thread([&] {
    struct Last {
      std::function<void()> f;
      ~Last() {
        if (f) f();
      }
    };
    thread_local Last last;
    last.f = [&] { equal = sums() == expected; };
    sums();
  }).join();
  EXPECT_TRUE(equal);
}

// Sums and differences of cells that are infinite, or would become so, must not reach the results of Note
// [Winograd]. The sums of these numbers are exact.
TEST_P(Conv3dCpu, HugeCellsInPairsOfOutputs) {
  const Conv3dGeometry g = TransposeCase{"pairs", 1, 32, 32, {8, 10, 12}, 3, 1, 1, 0, 1, 1}.geometry();
  const double infinity = inf, largest = GetParam() == f32 ? 0x1p127 : 0x1p1023;
  const Tensor weight = integer_tensor(g.weight_shape(), 3, GetParam()) * 0x1p-10,
               small = integer_tensor(g.small_shape(), 2, GetParam()) * 0x1p-10;
  for (const double cell : {infinity, -infinity, largest}) {
    SCOPED_TRACE(cell);
    Tensor big = zeros(g.big_shape(), {.dtype = GetParam()});
    big.slice(4, 3, 5).slice(3, 6, 8).slice(2, 2, 3).fill_(cell);
    const auto equal = [&](const Shape& shape, const auto& f) {
      return allclose(by("winograd", shape, GetParam(), f).value(),
                      by("direct", shape, GetParam(), f).value(), 0, 0, true);
    };
    EXPECT_TRUE(equal(g.small_shape(), [&](Tensor& y) { cpu::conv3d(big, weight, {}, y, g, highest); }));
    EXPECT_TRUE(equal(g.weight_shape(), [&](Tensor& dw) {
      Tensor none;
      cpu::conv3d_weight_grad(big, small, dw, none, Grid::big, g, highest);
    }));
  }
}

// Factors and sums are finite here, but products of factors are not: 18 * x and -18 * x, in a sum that is 0.
TEST_P(Conv3dCpu, ProductsThatOverflowInPairsOfOutputs) {
  const Conv3dGeometry g = TransposeCase{"pairs", 1, 32, 32, {8, 10, 12}, 3, 1, 1, 0, 1, 1}.geometry();
  const double x = GetParam() == f32 ? 0x1p124 : 0x1p1020;
  Tensor in = zeros(g.big_shape(), {.dtype = GetParam()}), weight = zeros(g.weight_shape(), in.options());
  const double cells[]{2, 1, -1}, taps[]{1, -1, 1};
  for (int64_t h = 0; h < 3; ++h)
    for (int64_t w = 0; w < 3; ++w) {
      in.select(0, 0).select(0, 0).select(0, 4).select(0, 3 + h).select(0, 5 + w).fill_(x * cells[h] *
                                                                                        cells[w]);
      weight.select(0, 0).select(0, 0).select(0, 1).select(0, h).select(0, w).fill_(2 * taps[h] * taps[w]);
    }
  const auto expect_equal = [&](const auto& f) {
    const Tensor y = by("winograd", g.small_shape(), GetParam(), f).value(),
                 expected = by("direct", g.small_shape(), GetParam(), f).value();
    EXPECT_TRUE(all(isfinite(expected)).item<bool>());
    EXPECT_TRUE(allclose(y, expected, 0, 0));
  };
  expect_equal([&](Tensor& y) { cpu::conv3d(in, weight, {}, y, g, highest); });
  expect_equal([&](Tensor& y) { cpu::conv_transpose3d(in, weight, {}, y, g, highest); });
}

// Whole numbers up to 256 are exact in bf16 and f16, and these sums are exact in f32: one rounding at the
// end.
TEST(Conv3dCpuHalf, TilesEqualF32RoundedOnce) {
  const TransposeCase tiled{"half", 2, 9, 12, {5, 6, 37}, {3, 2, 4}, {1, 2, 2}, {1, 0, 1}, 0, 1, 3},
      pairs{"pairs", 2, 32, 32, {5, 9, 12}, 3, 1, 1, 0, 1, 1};
  for (const auto& [dtype, c] : {std::pair(bf16, tiled), {f16, tiled}, {bf16, pairs}, {f16, pairs}}) {
    SCOPED_TRACE(std::string(to_string(dtype)) + " " + c.name);
    const Conv3dGeometry g = c.geometry();
    const Tensor big = integer_tensor(g.big_shape(), 1, f32), small = integer_tensor(g.small_shape(), 2, f32),
                 weight = integer_tensor(g.weight_shape(), 3, f32),
                 bias = integer_tensor({g.big_channels}, 4, f32);
    const Tensor half_big = big.to(dtype), half_small = small.to(dtype), half_weight = weight.to(dtype);
    const auto expect_rounded = [half = dtype](const Tensor& got, const Tensor& wide) {
      EXPECT_EQ(got.dtype(), half);
      EXPECT_TRUE(values(got) == values(wide.to(half)));
    };
    expect_rounded(detail::conv3d(half_big, half_weight, {}, g), detail::conv3d(big, weight, {}, g));
    expect_rounded(detail::conv_transpose3d(half_small, half_weight, bias.to(dtype), g),
                   detail::conv_transpose3d(small, weight, bias, g));
    expect_rounded(detail::conv3d_weight_grad(half_big, half_small, g),
                   detail::conv3d_weight_grad(big, small, g));
    expect_rounded(detail::weight_bias_grad(half_big, half_small, g, Grid::big).bias,
                   detail::weight_bias_grad(big, small, g, Grid::big).bias);
  }
}

}  // namespace
}  // namespace vox

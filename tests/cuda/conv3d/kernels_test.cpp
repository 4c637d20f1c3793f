#include <algorithm>
#include <optional>
#include <random>

#include "tests/cuda/conv3d/support.h"
#include "tests/support/conv3d_cases.h"

// Every kernel of the table, forced by name, on all problems that it takes: inputs are whole numbers, and
// results equal the reference.

namespace vox {
namespace {

using namespace vox::testing;

INSTANTIATE_TEST_SUITE_P(, Conv3dKernelsCuda, ::testing::ValuesIn(kernel_modes()), mode_name);

TEST_P(Conv3dKernelsCuda, RealCasesEqualTheReference) {
  int compared[3] = {};  // by pass
  for (const RealCase& c : read_cases()) {
    if (!c.legal || c.large()) continue;
    SCOPED_TRACE(c.name);
    const Conv3dGeometry g = c.geometry();
    for (const Conv3dPass pass : all_passes) {
      if (!takes(pass, g)) continue;
      compare(GetParam(), pass, g, c.bias);
      ++compared[static_cast<int>(pass)];
    }
  }
  if (of_patches(kernel())) return;  // which are few of these
  // A kernel supports at least one pass, and takes most geometries, or most of those for which it is meant.
  EXPECT_GT(std::ranges::max(compared), of_unit_stride(kernel()) ? 60 : 150);
  // Of 108 without a stride, or of 253. Boxes of 64 cells must divide the coarse grid of a weight gradient by
  // `dense`.
  const int least = of_unit_stride(kernel()) ? 60 : kernel().starts_with("dense") ? 40 : 80;
  for (const int n : compared) EXPECT_TRUE(n == 0 || n > least) << n;
}

// `direct` is compared with the reference at samples in tests/ops/conv3d_cases_test.cpp.
TEST_P(Conv3dKernelsCuda, LargeRealCasesEqualDirect) {
  if (kernel() == "direct") GTEST_SKIP() << "direct is what the others are compared with here";
  for (const RealCase& c : read_cases()) {
    if (!c.legal || !c.large()) continue;
    const Conv3dGeometry g = c.geometry();
    for (const Conv3dPass pass : all_passes) {
      if (!takes(pass, g)) continue;
      const OperandShapes shapes = shapes_of(pass, g);
      const Tensor a = randint(-4, 5, shapes.a, options()), b = randint(-4, 5, shapes.b, options());
      // Not their difference: sums over millions of cells may exceed f16 and be Inf in both.
      const Tensor differs = ne(run(GetParam(), pass, a, b, g), run(direct, pass, a, b, g));
      EXPECT_EQ(differs.to(f32).max().item<float>(), 0) << c.name << ' ' << name_of(pass);
    }
  }
}

// A kernel whose blocks compute several tiles: more tiles than multiprocessors, with a remainder on each
// axis, with rows that can be stored by fours and rows that cannot; and tiles of one window or two.
TEST_P(Conv3dKernelsCuda, ManyTilesEqualDirect) {
  if (!kernel().starts_with("windows")) GTEST_SKIP() << "blocks have one tile, or LargeRealCases have enough";
  struct Case {
    Shape input, weight;
    ConvTranspose3dOptions options;
  };
  for (const auto& [input, weight, options] : {Case{{2, 70, 19, 37, 50}, {70, 130, 3, 3, 3}, {.padding = 1}},
                                               Case{{2, 70, 19, 37, 52}, {70, 130, 3, 3, 3}, {.padding = 1}},
                                               Case{{600, 8, 1, 3, 5}, {8, 8, 1, 1, 1}, {}},
                                               Case{{300, 16, 2, 3, 4}, {16, 9, 2, 1, 1}, {.groups = 2}}}) {
    const Conv3dGeometry g = testing::geometry(input, weight, options);
    for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d}) {
      const OperandShapes shapes = shapes_of(pass, g);
      const Tensor a = randint(-1, 2, shapes.a, this->options()),
                   b = randint(-1, 2, shapes.b, this->options()),
                   bias = randint(-4, 5, {shapes.bias}, this->options());
      for (const int64_t offset : {0, 1}) {
        const Tensor differs =
            ne(run(GetParam(), pass, a, b, g, bias, offset), run(direct, pass, a, b, g, bias, offset));
        EXPECT_EQ(differs.to(f32).max().item<float>(), 0) << input << ' ' << name_of(pass) << ' ' << offset;
      }
    }
  }
}

/// A random one of these.
template <size_t n>
int64_t one_of(const int64_t (&values)[n], Random& random) {
  return values[random(0, n - 1)];
}

/// None if the padding crops all outputs.
std::optional<Conv3dGeometry> geometry(const Shape& input, const Shape& weight,
                                       const ConvTranspose3dOptions& options) {
  try {
    return detail::conv_transpose3d_geometry("random", input, weight, options);
  } catch (const ShapeError&) {
    return std::nullopt;
  }
}

/// Channel counts on both sides of every tile; geometries of every kind, or only those that `rolling` takes.
std::optional<Conv3dGeometry> random_geometry(Random& random, bool rolling) {
  constexpr int64_t channels[]{1, 3, 7, 8, 9, 16, 17, 24, 25, 33, 48, 65, 72, 130};
  const int64_t groups = random(0, 2) == 0 ? random(1, 3) : 1;
  const int64_t in = one_of(channels, random) * groups, out = one_of(channels, random);
  const Shape input{random(1, 3), in, random(1, 5), random(1, 7), random(1, 9)};
  Triple kernel{random(1, 3), random(1, 4), random(1, 11)};
  Triple stride = random.triple(1, 4), padding = random.triple(0, 2), dilation = random.triple(1, 3);
  if (rolling) {
    kernel.d = one_of({2, 3, 5}, random);
    stride = 1;
    dilation.d = 1;
  }
  const Triple output_padding{random(0, std::max(stride.d, dilation.d) - 1), 0,
                              random(0, std::max(stride.w, dilation.w) - 1)};
  return geometry(input, {in, out, kernel.d, kernel.h, kernel.w},
                  {.stride = stride,
                   .padding = padding,
                   .output_padding = output_padding,
                   .groups = groups,
                   .dilation = dilation});
}

/// Few channels per group, down to one on either side; rows, columns and depths of more than one tile.
std::optional<Conv3dGeometry> random_narrow_geometry(Random& random, bool rolling) {
  constexpr int64_t channels[]{1, 1, 1, 2, 3, 4, 5, 8, 9, 16};
  const int64_t groups = random(1, 5);
  const int64_t in = one_of(channels, random) * groups, out = one_of(channels, random);
  const Shape input{random(1, 2), in, random(1, 19), random(1, 21), random(1, 70)};
  Triple kernel = random.triple(1, 5), stride = random.triple(1, 3), padding = random.triple(0, 2),
         dilation = random.triple(1, 2);
  if (random(0, 1) == 0) dilation = 1;
  if (random(0, 2) == 0) stride = 2;
  if (rolling) stride = 1, dilation.d = 1, kernel.d = 3;
  const Triple output_padding{0, random(0, std::max(stride.h, dilation.h) - 1),
                              random(0, std::max(stride.w, dilation.w) - 1)};
  return geometry(input, {in, out, kernel.d, kernel.h, kernel.w},
                  {.stride = stride,
                   .padding = padding,
                   .output_padding = output_padding,
                   .groups = groups,
                   .dilation = dilation});
}

/// Kernels that equal their stride, with and without taps along w; channel counts on both sides of every tile
/// and step; few cells, and many of few channels.
std::optional<Conv3dGeometry> random_patches(Random& random, bool) {
  constexpr int64_t channels[]{1, 2, 3, 8, 15, 16, 17, 20, 32, 33, 64, 65, 129, 256};
  const Triple kernel{random(1, 3), random(1, 3), random(1, 2)};
  const int64_t in = one_of(channels, random), out = one_of(channels, random), most = in * out < 100 ? 20 : 4;
  Shape input{random(1, 3), in, random(1, most), random(1, most), 8 * random(1, 5)};
  if (kernel.h == 1 && input[3] % 4 == 0) input[4] /= 4;  // rows that are joined
  return geometry(input, {in, out, kernel.d, kernel.h, kernel.w}, {.stride = kernel});
}

/// Compares until this many passes are done, each of `most_products` at most.
void compare_random(const KernelMode& mode, std::optional<Conv3dGeometry> (*make)(Random&, bool),
                    uint64_t seed, int enough, double most_products) {
  Random random{std::mt19937_64(seed)};
  int compared = 0;
  for (int i = 0; i < 4000 && compared < enough; ++i) {
    const auto g = make(random, of_unit_stride(mode.kernel));
    const bool bias = random(0, 1) == 0;
    if (!g || static_cast<double>(g->batch * g->small_channels * g->small_cells()) *
                      static_cast<double>(g->big_per_group() * g->taps()) >
                  most_products)
      continue;
    for (const Conv3dPass pass : all_passes) {
      if (!takes(mode, pass, *g)) continue;
      compare(mode, pass, *g, bias);
      ++compared;
    }
  }
  EXPECT_GE(compared, enough);
}

TEST_P(Conv3dKernelsCuda, RandomGeometriesEqualTheReference) {
  if (of_patches(kernel())) return compare_random(GetParam(), random_patches, 11, 300, 4e6);
  compare_random(GetParam(), random_geometry, 11, 300, 2e7);
}

TEST_P(Conv3dKernelsCuda, GroupsOfFewChannelsEqualTheReference) {
  if (of_patches(kernel())) GTEST_SKIP() << "one group only";
  compare_random(GetParam(), random_narrow_geometry, 12, 200, 4e6);
}

/// Calls f(i) for the number of the first element of t, of the last, and of random ones.
template <class F>
void at_samples(const Tensor& t, F f) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 60; ++i)
    f(i == 0   ? 0
      : i == 1 ? t.numel() - 1
               : static_cast<int64_t>(random() % static_cast<uint64_t>(t.numel())));
}
float element(const Tensor& t, int64_t i) {
  return t.reshape({t.numel()}).select(0, i).to(f32).item<float>();
}

/// Two passes with the weights 3 and -2 along d: y = conv_transpose3d(x) + 1, and back = conv3d(y).
struct ThereAndBack {
  Tensor x, y, back;

  ThereAndBack(const KernelMode& mode, const Conv3dGeometry& g) {
    const Device device = Device::cuda();
    x = randint(-4, 5, g.small_shape(), {mode.dtype, device});
    const Tensor w = tensor({3, -2}, {1, 1, 2, 1, 1}, mode.dtype, device),
                 one = tensor({1}, {1}, mode.dtype, device);
    y = run(mode, Conv3dPass::conv_transpose3d, x, w, g, one);
    back = run(testing::takes(mode, Conv3dPass::conv3d, g) ? mode : direct, Conv3dPass::conv3d, y, w, g);
  }
};

// R7: offsets beyond 32 bits, in a batch and in one volume.
TEST_P(Conv3dKernelsCuda, MoreThanTwoTo32OutputsAtSamples) {
  for (const Shape& shape : {Shape{5, 1, 512, 1024, 1024}, Shape{1, 1, 2049, 1024, 1024}}) {
    const Conv3dGeometry g = testing::geometry(shape, {1, 1, 2, 1, 1}, {.stride = {2, 1, 1}});
    if (!takes(Conv3dPass::conv_transpose3d, g)) continue;
    const ThereAndBack t(GetParam(), g);
    at_samples(t.x, [&](int64_t j) {
      const int64_t row = 1024 * 1024, first = j / row * 2 * row + j % row;
      EXPECT_EQ(element(t.y, first), element(t.x, j) * 3 + 1) << j;
      EXPECT_EQ(element(t.y, first + row), element(t.x, j) * -2 + 1) << j;
      EXPECT_EQ(element(t.back, j), 13 * element(t.x, j) + 1) << j;
    });
  }
}

TEST_P(Conv3dKernelsCuda, MoreThanTwoTo31OutputsOfUnitSteps) {
  const int64_t depths = 128, row = 1024 * 1024;
  const Conv3dGeometry g = testing::geometry({20, 1, depths, 1024, 1024}, {1, 1, 2, 1, 1}, {});
  if (dtype() != f32 || !takes(Conv3dPass::conv_transpose3d, g)) return;
  const ThereAndBack t(GetParam(), g);
  at_samples(t.x, [&](int64_t j) {
    const int64_t d = j / row % depths, out = j + j / (depths * row) * row;
    EXPECT_EQ(element(t.y, out), 3 * element(t.x, j) - (d > 0 ? 2 * element(t.x, j - row) : 0) + 1) << j;
    EXPECT_EQ(element(t.back, j), 3 * element(t.y, out) - 2 * element(t.y, out + row)) << j;
  });
}

}  // namespace
}  // namespace vox

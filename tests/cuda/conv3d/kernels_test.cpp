#include "tests/cuda/conv3d/support.h"
#include "tests/support/conv3d_cases.h"

// Every kernel of the table, forced by name, on all problems that it takes: inputs are whole numbers, and
// results equal the reference.

namespace vox {
namespace {

class Conv3dKernelsCuda : public KernelTest {};
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
      EXPECT_EQ(differs.to(f32).max().item<float>(), 0) << c.name << ' ' << to_string(pass);
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
    const Conv3dGeometry g = geometry(input, weight, options);
    for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d}) {
      const OperandShapes shapes = shapes_of(pass, g);
      const Tensor a = randint(-1, 2, shapes.a, this->options()),
                   b = randint(-1, 2, shapes.b, this->options()),
                   bias = randint(-4, 5, {shapes.bias}, this->options());
      for (const int64_t offset : {0, 1}) {
        const Tensor differs =
            ne(run(GetParam(), pass, a, b, g, bias, offset), run(direct, pass, a, b, g, bias, offset));
        EXPECT_EQ(differs.to(f32).max().item<float>(), 0) << input << ' ' << to_string(pass) << ' ' << offset;
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
std::optional<Conv3dGeometry> geometry_to(const Shape& input, int64_t out, const Triple& kernel,
                                          const Triple& stride, const Triple& padding = 0,
                                          const Triple& output_padding = 0, int64_t groups = 1,
                                          const Triple& dilation = 1) {
  try {
    return geometry(input, {input[1], out, kernel.d, kernel.h, kernel.w},
                    {.stride = stride,
                     .padding = padding,
                     .output_padding = output_padding,
                     .groups = groups,
                     .dilation = dilation});
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
  return geometry_to(input, out, kernel, stride, padding, output_padding, groups, dilation);
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
  return geometry_to(input, out, kernel, stride, padding, output_padding, groups, dilation);
}

/// Kernels that equal their stride, with and without taps along w; channel counts on both sides of every tile
/// and step; few cells, and many of few channels.
std::optional<Conv3dGeometry> random_patches(Random& random, bool) {
  constexpr int64_t channels[]{1, 2, 3, 8, 15, 16, 17, 20, 32, 33, 64, 65, 129, 256};
  const Triple kernel{random(1, 3), random(1, 3), random(1, 2)};
  const int64_t in = one_of(channels, random), out = one_of(channels, random), most = in * out < 100 ? 20 : 4;
  Shape input{random(1, 3), in, random(1, most), random(1, most), 8 * random(1, 5)};
  if (kernel.h == 1 && input[3] % 4 == 0) input[4] /= 4;  // rows that are joined
  return geometry_to(input, out, kernel, kernel);
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
    const Conv3dGeometry g = geometry(shape, {1, 1, 2, 1, 1}, {.stride = {2, 1, 1}});
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
  const Conv3dGeometry g = geometry({20, 1, depths, 1024, 1024}, {1, 1, 2, 1, 1}, {});
  if (dtype() != f32 || !takes(Conv3dPass::conv_transpose3d, g)) return;
  const ThereAndBack t(GetParam(), g);
  at_samples(t.x, [&](int64_t j) {
    const int64_t d = j / row % depths, out = j + j / (depths * row) * row;
    EXPECT_EQ(element(t.y, out), 3 * element(t.x, j) - (d > 0 ? 2 * element(t.x, j - row) : 0) + 1) << j;
    EXPECT_EQ(element(t.back, j), 3 * element(t.y, out) - 2 * element(t.y, out + row)) << j;
  });
}

// Every kernel of the table, forced by name, on data other than whole numbers: the same bits on every run,
// errors on normal data, and values that are not finite. (highest_test.cpp tests `highest` in more detail.)

const TransposeCase tiled{"tiled",   2,         40,        24, {9, 10, 11}, {3, 2, 4}, {2, 1, 2},
                          {1, 0, 1}, {1, 0, 0}, {1, 2, 1}, 2};
const TransposeCase rolled{"rolled",  2, 40,        24, {9, 20, 21}, {3, 2, 4}, {1, 1, 1},
                           {1, 0, 1}, 0, {1, 2, 1}, 2};

const TransposeCase patches{"patches", 2, 40, 24, {5, 6, 16}, 2, 2, 0, 0, 1, 1};
// For weight gradients from channels-last data: windows, and shares of the steps that begin inside a tile.
const TransposeCase windows{"windows", 2, 70, 66, {6, 8, 16}, 3, 1, 1, 0, 1, 1};

/// The case that every kernel runs.
const TransposeCase& case_for(std::string_view kernel, Conv3dPass pass) {
  if (kernel.starts_with("dense") && pass == Conv3dPass::weight_grad) return windows;
  return of_unit_stride(kernel) ? rolled : of_patches(kernel) ? patches : tiled;
}

TEST_P(Conv3dKernelsCuda, SameBitsOnEveryRunAndStream) {
  for (const Conv3dPass pass : all_passes) {
    const Conv3dGeometry g = case_for(kernel(), pass).geometry();
    if (!takes(pass, g)) continue;
    const OperandShapes shapes = shapes_of(pass, g);
    const Tensor a = randn(shapes.a, options()), b = randn(shapes.b, options());
    const Values first = values(run(GetParam(), pass, a, b, g));
    for (const double v : first) ASSERT_FALSE(std::isnan(v));
    cuda::Stream side;
    side.wait(cuda::current_stream());
    for (int i = 0; i < 20; ++i) {
      std::optional<cuda::StreamGuard> guard;
      if (i % 2) guard.emplace(side);
      EXPECT_TRUE(values(run(GetParam(), pass, a, b, g)) == first) << to_string(pass) << ' ' << i;
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

// On normal data, operands rounded to nearest TF32 give an error of 2.9e-4, truncated ones 7.5e-4, and
// bf16 2.3e-3. 16-bit tensors hold their operands exactly; their results are rounded.
TEST_P(Conv3dKernelsCuda, NormalDataIsAsAccurateAsItsPrecision) {
  for (const Conv3dPass pass : all_passes) {
    const Conv3dGeometry g = case_for(kernel(), pass).geometry();
    if (!takes(pass, g)) continue;
    const OperandShapes shapes = shapes_of(pass, g);
    Tensor a = randn(shapes.a, options());
    const Tensor b = randn(shapes.b, options());
    if (pass == Conv3dPass::weight_grad) {  // channels of different sizes, whose scales differ
      Values sizes;
      for (int64_t c = 0; c < shapes.a[1]; ++c) sizes.push_back(std::exp2(c % 7 - 3));
      a = a * tensor(sizes, {1, shapes.a[1], 1, 1, 1}, dtype(), Device::cuda());
    }
    const Values exact = reference_values(pass, g, values(a), values(b));
    const double error = relative_error(values(run(GetParam(), pass, a, b, g)), exact);
    const bool as_f32 = kernel() == "direct" || precision() == Float32Precision::highest;
    const double limit = as_f32                                                       ? 1e-6
                         : dtype() == bf16 || precision() == Float32Precision::medium ? 5e-3
                                                                                      : 6e-4;
    EXPECT_LT(error, limit) << to_string(pass);
    EXPECT_GT(error, 0) << to_string(pass);
  }
}

// R8 below `highest`: an output that a non-finite value touches is never finite, and non-finite values of
// operands other than the weight reach no other output. At `highest` the result is that of f32 arithmetic, in
// weight gradients also of numbers so large that products overflow.
TEST_P(Conv3dKernelsCuda, NonFiniteValuesAreNeverLost) {
  std::vector<TransposeCase> cases = awkward_cases();
  cases.push_back({"rolled", 1, 9, 10, {3, 4, 5}, {3, 2, 2}, 1, {1, 0, 1}, 0, {1, 1, 2}, 1});
  // Both phases along w are multiplied, by a zero where one of them has no tap.
  cases.push_back({"zeros", 1, 5, 20, {3, 4, 70}, 3, 2, 1, 1, 1, 1});
  cases.push_back({"zeros first", 1, 5, 20, {2, 3, 5}, {2, 2, 3}, 2, 0, 0, 1, 1});
  // Boxes of 64 cells, whose windows overlap.
  cases.push_back({"windows", 1, 3, 5, {2, 4, 16}, 3, 1, 1, 0, 1, 1});
  if (of_patches(kernel())) {
    cases.push_back({"patches", 1, 5, 20, {2, 3, 8}, 2, 2, 0, 0, 1, 1});
    cases.push_back({"cells", 2, 20, 3, {1, 3, 8}, 1, 1, 0, 0, 1, 1});
  }
  for (const TransposeCase& c : cases) {
    const Conv3dGeometry g = c.geometry();
    for (const Conv3dPass pass : all_passes) {
      if (!takes(pass, g)) continue;
      const OperandShapes shapes = shapes_of(pass, g);
      for (const double bad : {inf, -inf, nan, 3.4e38}) {
        for (const int where_bad : {0, 1, 2, 3}) {
          const bool in_first = where_bad % 2 == 0, everywhere = where_bad >= 2;
          const bool may_overflow =
              pass == Conv3dPass::weight_grad && precision() == Float32Precision::highest && !everywhere;
          if (std::isfinite(bad) && !may_overflow) continue;
          Values a = integers(numel(shapes.a), 1), b = integers(numel(shapes.b), 2);
          Values& operand = in_first ? a : b;
          if (everywhere) std::ranges::fill(operand, bad);
          operand[operand.size() / 3] = bad;
          const Tensor y = run(GetParam(), pass, tensor(a, shapes.a, dtype(), Device::cuda()),
                               tensor(b, shapes.b, dtype(), Device::cuda()), g);
          const Values got = values(y), expected = rounded(reference_values(pass, g, a, b), dtype());
          for (size_t i = 0; i < got.size(); ++i) {
            const std::string where = str(c.name, ' ', to_string(pass), ' ', bad, " at ", i);
            if (precision() == Float32Precision::highest) {
              ASSERT_TRUE(same(got[i], expected[i])) << where;
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

// For compute-sanitizer: one small geometry for each edge case of every kernel of the table, forced by name.
// Inputs are whole numbers, and results equal the reference.

class Conv3dKernelsSanitizeCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, Conv3dKernelsSanitizeCuda, ::testing::ValuesIn(kernel_modes()), mode_name);

TEST_P(Conv3dKernelsSanitizeCuda, EveryEdge) {
  std::vector<Conv3dGeometry> geometries;
  for (const TransposeCase& c : awkward_cases()) geometries.push_back(c.geometry());
  const auto add = [&](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    geometries.push_back(geometry(input, weight, options));
  };
  // One for each width of a tile of channels, and several tiles of cells.
  for (const int64_t out : {8, 16, 24, 31, 48, 64, 70})
    add({2, 9, 3, 5, 7}, {9, out, 2, 3, 1}, {.stride = {1, 2, 1}, .padding = {0, 1, 0}});
  // Taps along w: more than share a tile, and taps so far apart that none do.
  for (const auto& [taps, dilation, stride] : {Triple(8, 1, 1), Triple(9, 1, 1), Triple(3, 4, 1),
                                               Triple(3, 5, 1), Triple(2, 9, 1), Triple(19, 1, 2)})
    add({2, 3, 1, 2, 5}, {3, 4, 1, 2, taps},
        {.stride = {1, 1, stride}, .padding = {0, 0, taps / 2}, .dilation = {1, 1, dilation}});
  // The product of `rolling`: more depths than a tile has, with a remainder; two blocks of channels; taps
  // along d in several groups, and far apart; rows so long that a window holds one row of taps.
  add({1, 9, 14, 3, 4}, {9, 17, 3, 2, 3}, {.padding = {1, 0, 2}});
  add({3, 3, 9, 4, 5}, {3, 24, 3, 3, 3}, {});
  add({2, 17, 5, 3, 4}, {17, 72, 2, 2, 2}, {});
  add({1, 4, 3, 3, 3}, {4, 40, 5, 2, 1}, {});
  add({1, 4, 5, 3, 3}, {4, 8, 4, 1, 2}, {.dilation = {3, 2, 1}});
  add({1, 3, 2, 5, 300}, {3, 5, 2, 3, 3}, {});
  add({2, 3, 2, 3, 180}, {3, 5, 1, 5, 2}, {.padding = {0, 2, 1}});
  // Strides with more taps than fit shared memory at once (strided/plan_test.cpp says how each is cut).
  add({1, 17, 4, 5, 9}, {17, 32, 5, 5, 5}, {.stride = 2, .padding = 2});
  add({1, 9, 3, 4, 5}, {9, 16, 7, 7, 7}, {.stride = 2, .padding = 3});
  add({1, 33, 3, 4, 20}, {33, 48, 7, 7, 5}, {.stride = {2, 2, 1}, .padding = {3, 3, 0}});
  // Both phases along w in one product: rows that lie within a tile, rows of several tiles and of a few
  // cells; rows that begin with the second phase; stride 1 along d and h; groups.
  add({1, 9, 2, 5, 64}, {9, 32, 3, 3, 3}, {.stride = 2, .padding = 1});
  add({1, 9, 2, 2, 200}, {9, 32, 2, 3, 4}, {.stride = 2, .padding = {0, 1, 1}});
  add({2, 8, 3, 5, 3}, {8, 24, 3, 4, 4}, {.stride = 2, .padding = {1, 2, 1}, .output_padding = 1});
  add({1, 17, 2, 7, 33}, {17, 32, 1, 1, 5}, {.stride = {1, 1, 2}, .padding = {0, 0, 2}});
  add({1, 20, 9, 40, 128}, {20, 31, 2, 1, 3}, {.stride = {2, 1, 2}, .padding = {0, 0, 1}, .groups = 2});
  // The same with two tiles of cells for a warpgroup: rows stored with the beginning of the next, except the
  // last; a window with a few positions more than producers bring in rounds.
  add({1, 40, 5, 14, 128}, {40, 31, 2, 3, 3}, {.stride = 2, .padding = {0, 1, 1}, .groups = 4});
  add({1, 18, 3, 45, 128}, {18, 32, 1, 3, 4}, {.stride = {1, 2, 2}, .padding = {0, 1, 1}, .groups = 2});
  // Strides of 3 and 4: three phases along w, four, and two live ones.
  add({2, 9, 3, 4, 7}, {9, 16, 4, 3, 5}, {.stride = 3, .padding = 1});
  add({1, 24, 2, 3, 20}, {24, 17, 4, 5, 4}, {.stride = 4});
  add({1, 8, 2, 3, 5}, {8, 8, 1, 2, 2}, {.stride = {1, 3, 4}});
  // Gathered cells: each tile of the kernel (blocks of channels, depths that a plane serves), with planes,
  // rows and columns outside, tiles that cut rows, and rows that begin anywhere.
  for (const int64_t taps : {1, 3, 5})
    for (const int64_t in : {16, 32, 48, 64})
      add({2, in, 2, 7, 21}, {in, 8, taps, 3, 2}, {.stride = 2, .padding = {taps / 2, 1, 0}});
  add({1, 70, 3, 3, 3}, {70, 19, 3, 3, 3}, {.stride = {2, 3, 1}, .padding = 1, .dilation = {2, 1, 2}});
  add({1, 17, 5, 2, 130}, {17, 16, 2, 5, 5}, {.stride = {3, 1, 2}, .padding = {0, 2, 2}});
  add({2, 9, 7, 5, 33}, {9, 50, 3, 3, 5}, {.padding = {3, 0, 5}, .dilation = {1, 2, 1}});
  // Sums that roll along d: each tile of the kernel, and planes outside the input.
  for (const int64_t taps : {2, 3, 5})
    for (const int64_t out : {16, 24, 32, 48, 64})
      add({2, 9, 4, 5, 6}, {9, out, taps, 2, 3}, {.padding = {1, 0, 1}});
  add({1, 8, 4, 12, 13}, {8, 17, 3, 3, 3}, {.padding = {2, 1, 1}, .dilation = {1, 2, 3}});
  // Few channels: each number of taps along h and each stride that a thread keeps in registers, and others;
  // rows of several tiles; each block of channels.
  for (const int64_t taps : {1, 2, 3, 4, 5, 6})
    for (const int64_t stride : {1, 2, 3})
      add({1, 3, 3, 11, 9}, {3, 1, 2, taps, 3}, {.stride = stride, .padding = {0, taps / 2, 1}, .groups = 3});
  add({2, 4, 2, 9, 70}, {4, 1, 3, 3, 3}, {.padding = 1, .groups = 4});
  add({1, 1, 5, 17, 150}, {1, 2, 3, 3, 2}, {.stride = {1, 1, 2}});
  for (const int64_t out : {2, 3, 5, 9})
    add({1, 4, 3, 5, 6}, {4, out, 3, 2, 3}, {.stride = {2, 1, 2}, .groups = 2});
  // Patches: every kernel, by the taps along w, and by the channels of both sides; rows that are joined; the
  // last cells of a warp missing; several blocks of rows.
  if (of_patches(kernel())) {
    for (const auto& [in, out] : {std::pair(2, 3), {3, 40}, {20, 2}, {33, 20}, {64, 8}, {130, 70}, {20, 300}})
      for (const Triple& size : {Triple(2), {1, 2, 2}, {2, 1, 1}, {3, 2, 1}, {1, 1, 2}, {1, 1, 1}})
        add({2, in, 1, 3, 24}, {in, out, size.d, size.h, size.w}, {.stride = size});
    add({3, 9, 2, 2, 2}, {9, 17, 1, 1, 1}, {});
    add({1, 32, 3, 6, 4}, {32, 2, 2, 1, 2}, {.stride = {2, 1, 2}});
    add({2, 200, 1, 1, 8}, {200, 64, 2, 2, 2}, {.stride = 2});
    add({1, 256, 1, 2, 8}, {256, 128, 2, 2, 2}, {.stride = 2});
  }
  for (const Conv3dGeometry& g : geometries) {
    for (const Conv3dPass pass : all_passes) {
      if (!takes(pass, g)) continue;
      compare(GetParam(), pass, g, false);
      if (pass != Conv3dPass::weight_grad) compare(GetParam(), pass, g, true);
    }
  }
}

// 16-bit numbers are read and written as words where possible. These cases have rows that begin at odd
// elements, because their length, a plane's, a channel's or the tensor's offset is odd; rows of one cell;
// padding that puts a word across two rows of the kernel's numbering; cropping that cuts a word; and cells
// two apart.
TEST_P(Conv3dKernelsSanitizeCuda, RowsThatBeginAnywhere) {
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
      // Both phases along w in one product; in the third case rows begin with the second phase.
      geometry({1, 8, 2, 3, 64}, {8, 31, 2, 2, 3}, {.stride = 2, .padding = {0, 0, 1}}),
      geometry({1, 8, 2, 5, 35}, {8, 32, 1, 2, 3}, {.stride = {1, 2, 2}}),
      geometry({1, 8, 2, 3, 66}, {8, 32, 2, 2, 4}, {.stride = 2, .padding = {0, 1, 1}}),
      // Patches.
      geometry({2, 9, 2, 3, 8}, {9, 8, 2, 2, 2}, {.stride = 2}),
      geometry({2, 9, 2, 3, 8}, {9, 3, 1, 1, 1}, {}),
  };
  for (const Conv3dGeometry& g : geometries)
    for (const Conv3dPass pass : all_passes)
      for (const int64_t offset : {0, 1, 2, 3})
        if (takes(pass, g))
          compare(GetParam(), pass, g, offset % 2 == 1 && pass != Conv3dPass::weight_grad, offset);
}

}  // namespace
}  // namespace vox

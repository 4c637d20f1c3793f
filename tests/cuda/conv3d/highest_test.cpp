#include "tests/cuda/conv3d/support.h"

// conv3d, conv_transpose3d and their weight gradients at `highest`: every kernel for f32 is as accurate as
// `direct`, for numbers of any size; at `high` it has the bits of TF32. (Non-finite values:
// kernels_test.cpp.)

namespace vox {
namespace {

constexpr TensorOptions on_gpu{.device = Device::cuda()};
constexpr Conv3dPass passes[]{Conv3dPass::conv3d, Conv3dPass::conv_transpose3d};

class HighestCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, HighestCuda,
                         ::testing::ValuesIn(f32_modes({"gather_tf32x3", "strided_f16x3", "mma_f16x3",
                                                        "patches_bf16x6", "few_channels"},
                                                       Float32Precision::highest)),
                         mode_name);

/// 1 with this probability, else 0.
Tensor some(const Shape& shape, double probability) { return lt(rand(shape, on_gpu), probability); }

/// Numbers that fall from 1 to 2^-60, or rise, from the first cell of every channel to the last.
Tensor decay(const Shape& shape) {
  const int64_t cells = shape[2] * shape[3] * shape[4];
  return exp(arange(cells, {.dtype = f32, .device = Device::cuda()}) * (60 * std::log(2.0) / cells) -
             60 * std::log(2.0))
      .reshape({1, 1, shape[2], shape[3], shape[4]});
}

struct Data {
  Tensor x, w;
};
Data data(std::string_view kind, const Shape& x_shape, const Shape& w_shape) {
  Tensor x = randn(x_shape, on_gpu), w = randn(w_shape, on_gpu);
  const Tensor signs = randint(0, 2, {1, x_shape[1], 1, 1, 1}, on_gpu) * 2.0 - 1.0;
  if (kind == "normal") return {x, w};
  if (kind == "positive") return {abs(x), abs(w)};
  if (kind == "sparse") return {where(some(x_shape, 0.9), zeros({}, on_gpu), x), w};
  if (kind == "small") return {x * 1e-12, w};
  if (kind == "channels") return {x * exp(signs * 34.5), w};                            // 1e15 and 1e-15
  if (kind == "elements") return {x * exp(randint(-1, 2, x_shape, on_gpu) * 69.0), w};  // 1e-30, 1, 1e30
  if (kind == "decay") return {x * decay(x_shape), w};
  // A weight has all its bits if it is at least 2^-16 of its channel's largest.
  w = where(lt(abs(w), 0.001), full({}, 0.001, on_gpu), w);
  if (kind == "far smaller alone")  // a few numbers of 1, and far from most of them as many of 1e-10
    return {where(some(x_shape, 0.9999), zeros({}, on_gpu), x * exp(randint(0, 2, x_shape, on_gpu) * -23.0)),
            w};
  if (kind == "far smaller weights")
    return {where(some(x_shape, 0.999), zeros({}, on_gpu), x),
            w * exp(randint(0, 2, {1, 1, w_shape[2], w_shape[3], w_shape[4]}, on_gpu) * -23.0)};
  ADD_FAILURE() << kind;
  return {x, w};
}

struct Case {
  Conv3dGeometry geometry;
  bool few = false;  // products for some outputs: too few where a tenth or a third of them count
};
/// Geometries with stride 1; for the kernels that support it also stride 2: all tiles of cells and channels,
/// and taps so far apart that few phases have any.
std::vector<Case> cases() {
  std::vector<Case> all{{geometry({2, 40, 9, 20, 30}, {40, 24, 3, 3, 3}, {})}};
  all.push_back({geometry({2, 32, 6, 20, 30}, {32, 32, 3, 3, 3}, {.stride = 2, .padding = 1}), true});
  all.push_back({geometry({2, 40, 6, 12, 20}, {40, 16, 4, 4, 4}, {.stride = 2, .padding = 1})});
  all.push_back(
      {geometry({2, 32, 6, 12, 24}, {32, 8, 3, 5, 7}, {.stride = 2, .padding = {1, 2, 3}, .groups = 2}),
       true});
  all.push_back({geometry({1, 100, 5, 12, 20}, {100, 48, 2, 4, 3}, {.stride = {1, 2, 2}})});
  all.push_back(
      {geometry({2, 24, 6, 12, 20}, {24, 64, 3, 3, 3}, {.stride = 2, .padding = 1, .dilation = 2})});
  all.push_back({geometry({2, 40, 5, 12, 20}, {40, 64, 3, 3, 3}, {.stride = 2}), true});
  all.push_back({geometry({2, 40, 4, 9, 20}, {40, 32, 3, 5, 5}, {.stride = 2, .padding = 2})});
  all.push_back({geometry({2, 200, 4, 6, 16}, {200, 24, 2, 2, 2}, {.stride = 2})});
  all.push_back({geometry({2, 100, 4, 6, 16}, {100, 40, 1, 1, 1}), true});
  // One plane of five inside the input, and one of three.
  all.push_back({geometry({2, 24, 1, 15, 15}, {24, 40, 5, 3, 3}, {.stride = 2, .padding = {2, 1, 1}}), true});
  all.push_back({geometry({1, 16, 1, 9, 10}, {16, 128, 3, 5, 5}, {.stride = 2, .padding = {1, 2, 2}}), true});
  return all;
}

// The error is at most twice that of f32 arithmetic, relative to the sum of absolute products in f64
// (`scale`). For the last two kinds of data most outputs are sums of very few products, which show the error
// of the split: two operands of 22 bits and a dropped product of low parts, 2^-21, and the truncation of the
// sum.
TEST_P(HighestCuda, IsAsAccurateAsDirect) {
  int compared = 0;
  for (const Case& c : cases()) {
    const Conv3dGeometry& g = c.geometry;
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, g)) continue;
      ++compared;
      for (const std::string_view kind : {"normal", "positive", "sparse", "small", "channels", "elements",
                                          "decay", "far smaller alone", "far smaller weights"}) {
        if (c.few && (kind == "sparse" || kind == "elements")) continue;
        const Data d = data(kind, shapes_of(pass, g).a, g.weight_shape());
        const auto [mine, of_direct] = errors_at_highest(kernel(), pass, d.x, d.w, g);
        const bool few = kind.starts_with("far");
        constexpr double of_parts = 0x1p-21 + 0x1p-23;
        const std::string where = str(to_string(pass), ' ', kind, ": ", g.small_shape(), ' ',
                                      g.weight_shape(), " stride ", g.stride);
        EXPECT_LE(mine.largest, few ? of_parts : 2 * of_direct.largest) << where;
        EXPECT_LE(mine.rms, few ? of_parts : 2 * of_direct.rms) << where;
      }
    }
  }
  EXPECT_GT(compared, 0);
}

// Both parts of one operand are used: whole numbers of 20 bits, times small ones.
TEST_P(HighestCuda, NumbersOfBothPartsAreExact) {
  for (const int64_t stride : {1, 2}) {
    const Conv3dGeometry g = geometry({2, 8, 5, 8, 9}, {8, 8, 1, 1, 1}, {.stride = stride});
    for (const Conv3dPass pass : passes) {
      if (!takes(pass, g)) continue;
      for (const bool long_x : {true, false}) {
        const int64_t limit = int64_t{1} << 20;
        const auto numbers = [&](const Shape& shape, bool long_ones) {
          return long_ones ? randint(-limit, limit + 1, shape, on_gpu) : randint(-1, 2, shape, on_gpu);
        };
        const Tensor x = numbers(shapes_of(pass, g).a, long_x), w = numbers(g.weight_shape(), !long_x);
        EXPECT_TRUE(values(run(GetParam(), pass, x, w, g)) ==
                    values(run(direct, pass, x.to(f64), w.to(f64), g)))
            << to_string(pass) << ' ' << long_x << " stride " << stride;
      }
    }
  }
}

class HighCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, HighCuda,
                         ::testing::ValuesIn(f32_modes({"rolling", "strided", "gather", "windows", "dense",
                                                        "mma", "patches_bf16x3"},
                                                       Float32Precision::high)),
                         mode_name);

// Two operands of 11 bits, which some kernels round by a multiplication: each is off by 0.69 units at most.
TEST_P(HighCuda, NumbersOfAnySizeHaveTheBitsOfTf32) {
  int compared = 0;
  for (const Case& c : cases())
    for (const Conv3dPass pass : passes) {
      const Conv3dGeometry& g = c.geometry;
      if (!takes(pass, g)) continue;
      ++compared;
      for (const std::string_view kind :
           {"normal", "positive", "small", "channels", "elements", "decay", "far smaller alone"}) {
        const Data d = data(kind, shapes_of(pass, g).a, g.weight_shape());
        const Tensor x = d.x.to(f64), w = d.w.to(f64);
        const Errors e = errors(run(GetParam(), pass, d.x, d.w, g), run(direct, pass, x, w, g),
                                run(direct, pass, abs(x), abs(w), g));
        EXPECT_LE(e.largest, 0x1p-9) << to_string(pass) << ' ' << kind << ": " << g.small_shape() << ' '
                                     << g.weight_shape() << " stride " << g.stride;
      }
    }
  EXPECT_GT(compared, 0);
}

// Weight gradients beyond the table of cases for all kernels (kernels_test.cpp): long sums in many slabs,
// dweight in many slices, large tensors, the bias, and errors at `highest`.

using enum Float32Precision;

class WeightGradCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, WeightGradCuda, ::testing::ValuesIn(kernel_modes()), mode_name);

constexpr auto pass = Conv3dPass::weight_grad;

// In the first case no tile size divides the rows, and slabs begin anywhere. Then come more taps and more
// channels than a block holds, on both sides, also by one; rows that are cut in the middle; rows that are
// read four at a time, and one by one; patches whose warps share rows, cells, or both. Sums are exact in f32
// and rounded once.
TEST_P(WeightGradCuda, ManySlabsAndSlicesEqualDirect) {
  if (kernel() == "direct") GTEST_SKIP() << "direct is what the others are compared with here";
  const Conv3dGeometry geometries[]{
      geometry({3, 17, 23, 37, 41}, {17, 19, 3, 3, 3}, {.stride = {1, 2, 1}, .padding = {1, 0, 2}}),
      geometry({2, 9, 6, 14, 18}, {9, 10, 7, 7, 7}, {.padding = 3}),
      geometry({1, 8, 6, 9, 18}, {8, 8, 9, 3, 9}, {.stride = {3, 1, 2}, .dilation = {1, 2, 1}}),
      geometry({2, 65, 5, 8, 16}, {65, 129, 2, 2, 2}, {.stride = 2}),
      geometry({2, 130, 3, 9, 17}, {130, 70, 1, 1, 1}),
      geometry({2, 48, 4, 6, 1000}, {48, 24, 3, 3, 3}, {.padding = 1}),
      geometry({9, 24, 1, 33, 80}, {24, 16, 1, 5, 5}, {.groups = 3}),
      geometry({2, 17, 5, 9, 20}, {17, 12, 3, 3, 3}, {.stride = {1, 1, 2}, .padding = 1}),
      geometry({2, 17, 5, 9, 21}, {17, 12, 3, 3, 3}, {.stride = {1, 1, 2}, .padding = 1}),
      geometry({2, 64, 16, 20, 24}, {64, 32, 2, 2, 2}, {.stride = 2}),
      geometry({1, 20, 30, 33, 40}, {20, 9, 1, 2, 2}, {.stride = {1, 2, 2}}),
      geometry({2, 130, 5, 6, 16}, {130, 70, 2, 2, 2}, {.stride = 2}),
      geometry({3, 2, 31, 33, 40}, {2, 32, 1, 1, 1}),
      geometry({1, 40, 20, 21, 24}, {40, 300, 1, 1, 1}),
      geometry({2, 9, 19, 17, 32}, {9, 16, 2, 2, 1}, {.stride = {2, 2, 1}}),
      geometry({1, 32, 24, 24, 24}, {32, 32, 1, 1, 2}, {.stride = {1, 1, 2}}),
      geometry({3, 70, 6, 8, 16}, {70, 130, 3, 3, 3}, {.padding = 1}),
      geometry({2, 129, 4, 4, 32}, {129, 65, 2, 1, 5}, {.dilation = {1, 1, 2}}),
      geometry({2, 64, 8, 8, 8}, {64, 200, 3, 3, 3}, {.padding = 1}),
      geometry({512, 128, 1, 4, 16}, {128, 2, 1, 1, 1}),  // 65,536 channels of all samples
      geometry({2, 20, 5, 11, 24}, {20, 18, 1, 5, 5}, {.padding = {0, 2, 2}}),
      geometry({2, 12, 7, 10, 22}, {12, 9, 2, 2, 3}, {.stride = {2, 1, 1}}),
      geometry({2, 16, 4, 9, 40}, {16, 16, 3, 3, 3}, {.padding = 2, .groups = 2, .dilation = 2}),
  };
  int compared = 0;
  for (const Conv3dGeometry& g : geometries) {
    if (!takes(pass, g)) continue;
    const Tensor big = randint(-4, 5, g.big_shape(), on_gpu).to(dtype()),
                 small = randint(-4, 5, g.small_shape(), on_gpu).to(dtype());
    EXPECT_TRUE(values(run(GetParam(), pass, big, small, g)) == values(run(direct, pass, big, small, g)))
        << g.big_shape() << ' ' << g.weight_shape();
    ++compared;
  }
  if (kernel().starts_with("weight_grad")) {
    EXPECT_GE(compared, 22);
  }
  if (kernel().starts_with("mma")) {  // some rows of which are for the other passes only
    EXPECT_TRUE(compared == 0 || compared == std::ssize(geometries)) << compared;
  }
  const bool dense = kernel() == "dense" || kernel() == "dense_bf16" || kernel() == "dense_f16";
  if (dense || of_patches(kernel())) {
    EXPECT_GE(compared, dense ? 10 : 7);
  }
}

TEST_P(WeightGradCuda, AnEmptyBatchGivesZeros) {
  const Conv3dGeometry g = geometry({0, 8, 3, 4, 5}, {8, 16, 2, 3, 3});
  if (!takes(pass, g)) return;
  const Tensor dweight =
      run(GetParam(), pass, empty(g.big_shape(), options()), empty(g.small_shape(), options()), g);
  EXPECT_TRUE(values(dweight) == Values(static_cast<size_t>(dweight.numel())));
}

// R7: offsets beyond 32 bits, in a batch and in one image. All except a few elements are zero, so sums are
// exact.
void expect_large_tensors_at_samples(const KernelMode& mode, const ConvTranspose3dOptions& options) {
  for (const Shape& shape : {Shape{9, 8, 32, 1024, 1024}, Shape{1, 8, 270, 1024, 1024}}) {
    const Conv3dGeometry g = geometry(shape, {8, 8, 1, 1, 2}, options);
    if (!takes(mode, pass, g)) continue;
    const TensorOptions of_mode{.dtype = mode.dtype, .device = Device::cuda()};
    Tensor big = zeros(g.big_shape(), of_mode), small = zeros(g.small_shape(), of_mode);
    std::mt19937_64 random(3);
    Doubles expected(8 * 8 * 2);
    for (int i = 0; i < 40; ++i) {
      const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
      const int64_t n = i == 0 ? shape[0] - 1 : pick(shape[0]), d = i == 0 ? shape[2] - 1 : pick(shape[2]);
      const int64_t h = i * 25, w = pick(shape[4]), s = pick(8), b = pick(8), tap = pick(2);
      const int64_t big_w = w * g.stride.w + tap;
      small.select(0, n).select(0, s).select(0, d).select(0, h).select(0, w).fill_(2);
      big.select(0, n).select(0, b).select(0, d).select(0, h).select(0, big_w).fill_(i + 1);
      expected[static_cast<size_t>((s * 8 + b) * 2 + tap)] += 2 * (i + 1);  // rows h are all different
    }
    EXPECT_TRUE(values(run(mode, pass, big, small, g)) == rounded(expected, mode.dtype)) << shape;
  }
}

TEST_P(WeightGradCuda, MoreThanTwoTo31ElementsAtSamples) {
  if (kernel() == "direct") GTEST_SKIP() << "direct is what the others are compared with here";
  expect_large_tensors_at_samples(GetParam(), {});
  if (of_patches(kernel())) expect_large_tensors_at_samples(GetParam(), {.stride = {1, 1, 2}});
}

// All kernels share the bias gradient; a channel has many parts, or one.
TEST_P(WeightGradCuda, BiasIsTheSumOfEitherGrid) {
  for (const Shape& input : {Shape{3, 16, 9, 40, 50}, Shape{1, 16, 1, 2, 3}}) {
    const Conv3dGeometry g = geometry(input, {16, 24, 2, 2, 2}, {.stride = 2});
    if (!takes(pass, g)) continue;
    const Tensor big = randint(-4, 5, g.big_shape(), on_gpu).to(dtype()),
                 small = randint(-4, 5, g.small_shape(), on_gpu).to(dtype());
    for (const Grid grid : {Grid::big, Grid::small}) {
      const Tensor& of = grid == Grid::big ? big : small;
      Tensor dweight = empty(g.weight_shape(), options());
      Tensor dbias = full({of.size(1)}, nan, options());
      const ForceConv3dKernel only(kernel());
      cuda::conv3d_weight_grad(big, small, dweight, dbias, grid, g, precision());
      EXPECT_TRUE(values(dbias) == values(sum(of, {0, 2, 3, 4})));
    }
  }
}

// At `highest`, on normal data and on data of very different sizes: at most twice the error of f32
// arithmetic, relative to the sum of absolute products in f64 (`scale`). That holds for the root of the mean
// square; the largest error depends on the draw, so it may also be half of f32's unit roundoff. On data of
// one sign the tensor core's truncation shows, because it always goes one way: some units of f32's last place
// (6e-8), where `direct`, which adds in a tree, has half of one.
void expect_as_accurate_as_direct(std::string_view kernel, const Conv3dGeometry& g) {
  if (!testing::takes({kernel, f32, highest}, pass, g)) return;
  manual_seed(1);
  const Tensor sizes = randint(-1, 2, g.big_shape(), on_gpu);  // -1, 0, 1
  // 2^-rate at depth 1, and so on.
  const auto decay = [](const Shape& shape, double rate) {
    return exp(arange(shape[2], on_gpu).to(f32) * (-rate * std::log(2.0))).reshape({1, 1, shape[2], 1, 1});
  };
  for (const char* kind : {"normal", "positive", "scaled", "regions"}) {
    Tensor big = randn(g.big_shape(), on_gpu), small = randn(g.small_shape(), on_gpu);
    if (kind == std::string_view("positive")) big = abs(big), small = abs(small);
    if (kind == std::string_view("scaled")) big = big * exp(sizes * 69.0);  // 1e-30, 1, 1e30
    if (kind == std::string_view("regions")) {  // a channel of big meets small numbers only, or large ones
      const Tensor depth = arange(g.big.d, on_gpu).reshape({1, 1, g.big.d, 1, 1}),
                   channel = arange(g.big_channels, on_gpu).reshape({1, g.big_channels, 1, 1, 1});
      big = where(eq(depth, channel), big, zeros({}, on_gpu)) * decay(g.big_shape(), 4);
      small = small * decay(g.small_shape(), 5);
    }
    const auto [mine, of_direct] = errors_at_highest(kernel, pass, big, small, g);
    const bool one_sign = kind == std::string_view("positive");
    EXPECT_LE(mine.largest, one_sign ? 3e-7 : std::max(2 * of_direct.largest, 0x1p-25)) << kind;
    EXPECT_LE(mine.rms, one_sign ? 3e-7 : 2 * of_direct.rms) << kind;
  }
}

TEST_P(WeightGradCuda, HighestIsAsAccurateAsDirect) {
  expect_as_accurate_as_direct(kernel(),
                               geometry({4, 24, 10, 30, 40}, {24, 16, 3, 3, 3}, {.stride = {1, 1, 2}}));
  if (of_patches(kernel()))
    expect_as_accurate_as_direct(kernel(), geometry({4, 24, 10, 15, 40}, {24, 16, 2, 2, 2}, {.stride = 2}));
  expect_as_accurate_as_direct(kernel(), geometry({4, 24, 10, 30, 40}, {24, 70, 1, 1, 1}));
}

}  // namespace
}  // namespace vox

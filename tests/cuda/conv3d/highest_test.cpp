#include <cmath>
#include <string>
#include <vector>

#include "tests/cuda/conv3d/support.h"

// conv3d and conv_transpose3d at `highest`: every kernel for f32 is as accurate as `direct`, for numbers of
// any size. (Weight gradients: weight_grad_test.cpp. Non-finite values: kernels_numerics_test.cpp.)

namespace vox {
namespace {

using namespace vox::testing;

constexpr TensorOptions on_gpu{.device = Device::cuda()};
constexpr Conv3dPass passes[]{Conv3dPass::conv3d, Conv3dPass::conv_transpose3d};

class HighestCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, HighestCuda,
                         ::testing::ValuesIn(f32_modes({"gather_tf32x3", "strided_f16x3", "flat_f16x3",
                                                        "mma_f16x3", "patches_bf16x6", "few_channels"},
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
  if (kind == "positive") return {abs(x), abs(w)};
  if (kind == "sparse") return {where(some(x_shape, 0.9), zeros({}, on_gpu), x), w};
  if (kind == "small") return {x * 1e-12, w};
  if (kind == "channels") return {x * exp(signs * 34.5), w};                            // 1e15 and 1e-15
  if (kind == "elements") return {x * exp(randint(-1, 2, x_shape, on_gpu) * 69.0), w};  // 1e-30, 1, 1e30
  if (kind == "decay") return {x * decay(x_shape), w};
  if (kind == "far smaller alone")  // a few numbers of 1, and far from most of them as many of 1e-10
    return {where(some(x_shape, 0.9999), zeros({}, on_gpu), x * exp(randint(0, 2, x_shape, on_gpu) * -23.0)),
            w};
  if (kind == "far smaller weights")
    return {where(some(x_shape, 0.999), zeros({}, on_gpu), x),
            w * exp(randint(0, 2, {1, 1, w_shape[2], w_shape[3], w_shape[4]}, on_gpu) * -23.0)};
  EXPECT_EQ(kind, "normal");
  return {x, w};
}

struct Case {
  Conv3dGeometry geometry;
  bool few = false;  // products for some outputs: too few where a tenth or a third of them count
};
/// Geometries with stride 1; for the kernels that support it also stride 2: all tiles of cells and channels,
/// and taps so far apart that few phases have any.
std::vector<Case> cases(std::string_view kernel) {
  std::vector<Case> all{{geometry({2, 40, 9, 20, 30}, {40, 24, 3, 3, 3}, {})}};
  if (kernel.starts_with("flat")) return all;
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
  for (const Case& c : cases(kernel())) {
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
        const std::string where =
            str(name_of(pass), ' ', kind, ": ", g.small_shape(), ' ', g.weight_shape(), " stride ", g.stride);
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
            << name_of(pass) << ' ' << long_x << " stride " << stride;
      }
    }
  }
}

}  // namespace
}  // namespace vox

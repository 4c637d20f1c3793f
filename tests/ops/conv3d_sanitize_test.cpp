#include <gtest/gtest.h>

#include <voxgrad/ops/conv3d.h>
#include <voxgrad/ops/conv3d_recorded.h>

#include "tests/support/conv3d.h"
#include "tests/support/devices.h"

// One small geometry per kernel and edge, cheap enough for compute-sanitizer: 32- and 64-bit indices, all
// floating dtypes, with and without bias, volumes shorter and longer than a block.

namespace vox {
namespace {

using testing::values;

class Conv3dSanitize : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, Conv3dSanitize, testing::devices(), testing::device_name);

TEST_P(Conv3dSanitize, EveryKernelAndEdge) {
  std::vector<Conv3dGeometry> geometries;
  for (const auto& c : testing::awkward_cases()) geometries.push_back(c.geometry());
  // Strides and dilations that need 64-bit indices, and a volume of more than one block.
  geometries.push_back(detail::conv_transpose3d_geometry(
      "far", {1, 2, 2, 1, 1}, {2, 1, 1, 2, 2},
      {.stride = {int64_t{1} << 40, 1, 1}, .padding = {int64_t{1} << 39, 0, 0}, .dilation = {1, 2, 1}}));
  geometries.push_back(
      detail::conv_transpose3d_geometry("long", {1, 5, 3, 7, 9}, {5, 3, 2, 3, 2}, {.stride = {1, 2, 2}}));
  for (const Conv3dGeometry& g : geometries) {
    const reference::Conv3d r = testing::reference_of(g);
    for (const DType dtype : {f32, f64, bf16, f16}) {
      const auto make = [&](const Shape& shape, uint64_t seed) {
        return testing::integer_tensor(shape, seed, dtype, device());
      };
      const Tensor big = make(g.big_shape(), 1), small = make(g.small_shape(), 2),
                   w = make(g.weight_shape(), 3);
      const Tensor bias_small = make({g.small_channels}, 4), bias_big = make({g.big_channels}, 5);
      const auto b = values(big), s = values(small), wv = values(w);
      const auto expect_equal = [dtype](const Tensor& got, const testing::Values& exact) {
        EXPECT_EQ(values(got), testing::rounded(exact, dtype));
      };
      expect_equal(detail::conv3d(big, w, {}, g), reference::conv3d(r, b, wv));
      expect_equal(detail::conv3d(big, w, bias_small, g), reference::conv3d(r, b, wv, values(bias_small)));
      expect_equal(detail::conv_transpose3d(small, w, {}, g), reference::conv_transpose3d(r, s, wv));
      expect_equal(detail::conv_transpose3d(small, w, bias_big, g),
                   reference::conv_transpose3d(r, s, wv, values(bias_big)));
      expect_equal(detail::conv3d_weight_grad(big, small, g), reference::weight_grad(r, b, s));
      const auto of_big = detail::weight_bias_grad(big, small, g, Grid::big);
      expect_equal(of_big.weight, reference::weight_grad(r, b, s));
      expect_equal(of_big.bias, reference::bias_grad(b, g.batch, g.big_channels, r.big_cells()));
      const auto of_small = detail::weight_bias_grad(big, small, g, Grid::small);
      expect_equal(of_small.bias, reference::bias_grad(s, g.batch, g.small_channels, r.small_cells()));
    }
  }
}

TEST_P(Conv3dSanitize, EmptyBatch) {
  const Tensor x = zeros({0, 2, 2, 2, 2}, {.device = device()}),
               w = zeros({2, 1, 2, 2, 2}, {.device = device()});
  EXPECT_EQ(conv_transpose3d(x, w).numel(), 0);
  EXPECT_EQ(values(conv3d_weight_grad(x, x, 1)), testing::Values(4, 0));
}

}  // namespace
}  // namespace vox

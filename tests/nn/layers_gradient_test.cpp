#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/linear.h>

#include "tests/support/devices.h"
#include "tests/support/values.h"

namespace vox {
namespace {

class LayersGradientTest : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, LayersGradientTest, testing::devices(), testing::device_name);

/// gradcheck of a layer in double, with respect to its input and its parameters.
template <class Layer>
void check_gradients(Layer& layer, const Shape& input_shape, Device device) {
  layer.to(f64).to(device);
  Tensor x = testing::normal(input_shape, {.dtype = f64, .device = device});
  x.set_requires_grad(true);
  std::vector<Tensor> inputs = layer.parameters();
  inputs.push_back(x);
  EXPECT_TRUE(autograd::gradcheck([&](const std::vector<Tensor>& all) { return layer(all.back()); }, inputs));
}

TEST_P(LayersGradientTest, Linear) {
  nn::Linear layer({.in_features = 3, .out_features = 2});
  check_gradients(layer, {2, 2, 3}, device());
}
TEST_P(LayersGradientTest, Conv1d) {
  nn::Conv1d layer({.in_channels = 4,
                    .out_channels = 2,
                    .kernel_size = 3,
                    .stride = 2,
                    .padding = 1,
                    .dilation = 2,
                    .groups = 2});
  check_gradients(layer, {2, 4, 7}, device());
}
TEST_P(LayersGradientTest, Conv2d) {
  nn::Conv2d layer(
      {.in_channels = 2, .out_channels = 3, .kernel_size = {2, 3}, .stride = {1, 2}, .padding = {1, 0}});
  check_gradients(layer, {1, 2, 3, 5}, device());
}
TEST_P(LayersGradientTest, Conv3d) {
  nn::Conv3d layer({.in_channels = 2,
                    .out_channels = 2,
                    .kernel_size = {2, 1, 3},
                    .stride = {1, 2, 1},
                    .padding = {0, 0, 1}});
  check_gradients(layer, {1, 2, 3, 3, 2}, device());
}
TEST_P(LayersGradientTest, ConvTranspose1d) {
  nn::ConvTranspose1d layer({.in_channels = 2,
                             .out_channels = 4,
                             .kernel_size = 3,
                             .stride = 2,
                             .padding = 1,
                             .output_padding = 1,
                             .groups = 2});
  check_gradients(layer, {2, 2, 3}, device());
}
TEST_P(LayersGradientTest, ConvTranspose2d) {
  nn::ConvTranspose2d layer(
      {.in_channels = 2, .out_channels = 1, .kernel_size = {2, 3}, .stride = {1, 2}, .dilation = {2, 1}});
  check_gradients(layer, {1, 2, 2, 3}, device());
}
TEST_P(LayersGradientTest, ConvTranspose3d) {
  nn::ConvTranspose3d layer({.in_channels = 2,
                             .out_channels = 2,
                             .kernel_size = {1, 2, 3},
                             .stride = {1, 2, 2},
                             .padding = {0, 0, 1}});
  check_gradients(layer, {1, 2, 2, 2, 2}, device());
}
TEST_P(LayersGradientTest, PoolingAndUpsample) {
  nn::MaxPool3d max({.kernel_size = 2, .padding = 1});
  check_gradients(max, {1, 1, 3, 3, 3}, device());
  nn::AvgPool3d avg({.kernel_size = 2, .stride = 1});
  check_gradients(avg, {1, 1, 3, 2, 3}, device());
  nn::Upsample up({.scale_factor = {{2, 1, 1.5}}, .mode = InterpolateOptions::Mode::trilinear});
  check_gradients(up, {1, 1, 2, 2, 2}, device());
}

}  // namespace
}  // namespace vox

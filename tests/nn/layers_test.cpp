#include <voxgrad/core/factories.h>
#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/linear.h>

#include "tests/support/devices.h"
#include "tests/support/values.h"

#include <cmath>

namespace vox {
namespace {

class LayersTest : public testing::DeviceTest {
 protected:
  TensorOptions f32_here() const { return {.dtype = f32, .device = device()}; }
  TensorOptions f64_here() const { return {.dtype = f64, .device = device()}; }
  Tensor tensor(const std::vector<float>& values, const Shape& shape) const {
    return from_vector<float>(values, shape, device());
  }
};
INSTANTIATE_TEST_SUITE_P(, LayersTest, testing::devices(), testing::device_name);

int64_t parameter_count(const nn::Module& m) {
  int64_t count = 0;
  for (const Tensor& p : m.parameters()) count += p.numel();
  return count;
}

// ---- Shapes of weight, output, and the number of parameters, as torch.nn gives them -----------------------

TEST_P(LayersTest, Conv1dShapes) {
  nn::Conv1d layer({.in_channels = 4,
                    .out_channels = 6,
                    .kernel_size = 3,
                    .stride = 2,
                    .padding = 1,
                    .dilation = 2,
                    .groups = 2,
                    .tensor = f32_here()});
  EXPECT_EQ(layer.weight.shape(), Shape({6, 2, 3}));
  EXPECT_EQ(layer.bias.shape(), Shape({6}));
  EXPECT_EQ(parameter_count(layer), 42);
  EXPECT_EQ(layer(rand({5, 4, 11}, f32_here())).shape(), Shape({5, 6, 5}));
  EXPECT_EQ(layer(rand({4, 11}, f32_here())).shape(), Shape({6, 5}));
}

TEST_P(LayersTest, Conv2dShapes) {
  nn::Conv2d layer({.in_channels = 4,
                    .out_channels = 6,
                    .kernel_size = {3, 2},
                    .stride = {2, 1},
                    .padding = {1, 0},
                    .dilation = {1, 2},
                    .groups = 2,
                    .bias = false,
                    .tensor = f32_here()});
  EXPECT_EQ(layer.weight.shape(), Shape({6, 2, 3, 2}));
  EXPECT_FALSE(layer.bias.defined());
  EXPECT_EQ(parameter_count(layer), 72);
  EXPECT_EQ(layer(rand({5, 4, 7, 8}, f32_here())).shape(), Shape({5, 6, 4, 6}));
}

TEST_P(LayersTest, Conv3dShapes) {
  nn::Conv3d layer({.in_channels = 4,
                    .out_channels = 6,
                    .kernel_size = {3, 2, 1},
                    .stride = {2, 1, 3},
                    .padding = {1, 0, 2},
                    .dilation = {1, 2, 1},
                    .groups = 2,
                    .tensor = f32_here()});
  EXPECT_EQ(layer.weight.shape(), Shape({6, 2, 3, 2, 1}));
  EXPECT_EQ(parameter_count(layer), 78);
  EXPECT_EQ(layer(rand({2, 4, 7, 8, 9}, f32_here())).shape(), Shape({2, 6, 4, 6, 5}));
}

TEST_P(LayersTest, ConvTranspose1dShapes) {
  nn::ConvTranspose1d layer({.in_channels = 4,
                             .out_channels = 6,
                             .kernel_size = 3,
                             .stride = 2,
                             .padding = 1,
                             .output_padding = 1,
                             .groups = 2,
                             .dilation = 2,
                             .tensor = f32_here()});
  EXPECT_EQ(layer.weight.shape(), Shape({4, 3, 3}));
  EXPECT_EQ(layer.bias.shape(), Shape({6}));
  EXPECT_EQ(parameter_count(layer), 42);
  EXPECT_EQ(layer(rand({5, 4, 7}, f32_here())).shape(), Shape({5, 6, 16}));
  EXPECT_EQ(layer.forward(rand({5, 4, 7}, f32_here()), 15).shape(), Shape({5, 6, 15}));
  EXPECT_THROW(layer.forward(rand({5, 4, 7}, f32_here()), 20), ShapeError);
}

TEST_P(LayersTest, ConvTranspose2dShapes) {
  nn::ConvTranspose2d layer({.in_channels = 4,
                             .out_channels = 6,
                             .kernel_size = {3, 2},
                             .stride = {2, 1},
                             .padding = {1, 0},
                             .output_padding = {1, 0},
                             .groups = 2,
                             .bias = false,
                             .dilation = {1, 2},
                             .tensor = f32_here()});
  EXPECT_EQ(layer.weight.shape(), Shape({4, 3, 3, 2}));
  EXPECT_EQ(parameter_count(layer), 72);
  EXPECT_EQ(layer(rand({5, 4, 7, 8}, f32_here())).shape(), Shape({5, 6, 14, 10}));
  EXPECT_EQ(layer.forward(rand({5, 4, 7, 8}, f32_here()), {13, 10}).shape(), Shape({5, 6, 13, 10}));
}

TEST_P(LayersTest, ConvTranspose3dShapes) {
  nn::ConvTranspose3d layer(
      {.in_channels = 64, .out_channels = 32, .kernel_size = 4, .stride = 2, .padding = 1});
  EXPECT_EQ(layer.weight.shape(), Shape({64, 32, 4, 4, 4}));
  EXPECT_EQ(parameter_count(layer), 64 * 32 * 64 + 32);
  nn::ConvTranspose3d small({.in_channels = 2,
                             .out_channels = 4,
                             .kernel_size = 3,
                             .stride = {1, 2, 3},
                             .padding = 1,
                             .groups = 2,
                             .tensor = f32_here()});
  EXPECT_EQ(small.weight.shape(), Shape({2, 2, 3, 3, 3}));
  EXPECT_EQ(small(rand({1, 2, 3, 4, 5}, f32_here())).shape(), Shape({1, 4, 3, 7, 13}));
  EXPECT_EQ(small.forward(rand({1, 2, 3, 4, 5}, f32_here()), {3, 8, 15}).shape(), Shape({1, 4, 3, 8, 15}));
}

TEST_P(LayersTest, LinearShapes) {
  nn::Linear layer({.in_features = 5, .out_features = 3, .tensor = f32_here()});
  EXPECT_EQ(layer.weight.shape(), Shape({3, 5}));
  EXPECT_EQ(parameter_count(layer), 18);
  for (const Shape& batch : {Shape{}, Shape{7}, Shape{2, 7}, Shape{2, 3, 4}, Shape{0}, Shape{0, 2}}) {
    Shape in = batch, out = batch;
    in.push_back(5);
    out.push_back(3);
    EXPECT_EQ(layer(rand(in, f32_here())).shape(), out);
  }
  EXPECT_THROW(layer(rand({4}, f32_here())), ShapeError);
  EXPECT_THROW(layer(rand({}, f32_here())), ShapeError);
  EXPECT_THROW(layer(Tensor()), ValueError);
  EXPECT_THROW(layer(rand({5}, f64_here())), DTypeError);
}

TEST_P(LayersTest, LinearWithoutFeatures) {
  nn::Linear none_in({.in_features = 0, .out_features = 2, .tensor = f32_here()});
  EXPECT_EQ(none_in.bias.to_vector<float>(), (std::vector<float>{0, 0}));
  none_in.bias.detach().fill_(3);
  Tensor y = none_in(ones({2, 0}, f32_here()));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 3, 3, 3}));
  y.sum().backward();
  EXPECT_EQ(none_in.weight.grad().shape(), Shape({2, 0}));
  EXPECT_EQ(none_in.bias.grad().to_vector<float>(), (std::vector<float>{2, 2}));

  nn::Linear none_out({.in_features = 2, .out_features = 0, .tensor = f32_here()});
  Tensor x = ones({1, 3, 2}, f32_here()).set_requires_grad();
  Tensor z = none_out(x);
  EXPECT_EQ(z.shape(), Shape({1, 3, 0}));
  z.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(6));
}

// ---- Values by hand -----------------------------------------------------------------------------------

TEST_P(LayersTest, LinearByHand) {
  nn::Linear layer({.in_features = 3, .out_features = 2});
  layer.load_state_dict({{"weight", from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
                         {"bias", from_vector<float>({10, 20}, {2})}});
  layer.to(device());
  // 1*1 + 0*2 - 1*3 + 10, 1*4 + 0*5 - 1*6 + 20; 2*(1+2+3) + 10, 2*(4+5+6) + 20
  const Tensor x = tensor({1, 0, -1, 2, 2, 2}, {2, 3});
  EXPECT_EQ(layer(x).to_vector<float>(), (std::vector<float>{8, 18, 22, 50}));
  EXPECT_EQ(layer(x.reshape({1, 2, 1, 3})).to_vector<float>(), (std::vector<float>{8, 18, 22, 50}));
  EXPECT_EQ(layer(x.select(0, 0)).to_vector<float>(), (std::vector<float>{8, 18}));
}

TEST_P(LayersTest, Conv1dByHand) {
  nn::Conv1d layer({.in_channels = 1,
                    .out_channels = 1,
                    .kernel_size = 2,
                    .stride = 2,
                    .padding = 1,
                    .tensor = f32_here()});
  layer.load_state_dict(
      {{"weight", from_vector<float>({10, 1}, {1, 1, 2})}, {"bias", from_vector<float>({100}, {1})}});
  // (0,1) (2,3) (4,0) times (10,1), plus 100
  EXPECT_EQ(layer(tensor({1, 2, 3, 4}, {1, 1, 4})).to_vector<float>(), (std::vector<float>{101, 123, 140}));
}

TEST_P(LayersTest, Conv2dByHand) {
  nn::Conv2d layer({.in_channels = 1,
                    .out_channels = 1,
                    .kernel_size = {1, 2},
                    .stride = {2, 1},
                    .bias = false,
                    .tensor = f32_here()});
  layer.load_state_dict({{"weight", from_vector<float>({10, 1}, {1, 1, 1, 2})}});
  // rows 0 and 2 of (1,2,3 / 4,5,6 / 7,8,9)
  EXPECT_EQ(layer(tensor({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3})).to_vector<float>(),
            (std::vector<float>{12, 23, 78, 89}));
}

TEST_P(LayersTest, Conv3dByHand) {
  nn::Conv3d layer({.in_channels = 2, .out_channels = 1, .kernel_size = {2, 1, 1}, .tensor = f32_here()});
  layer.load_state_dict({{"weight", from_vector<float>({1, 10, 100, 1000}, {1, 2, 2, 1, 1})},
                         {"bias", from_vector<float>({5}, {1})}});
  EXPECT_EQ(layer(tensor({1, 2, 3, 4}, {1, 2, 2, 1, 1})).to_vector<float>(), (std::vector<float>{4326}));
}

// Golden case G6: x = (1,2), w = (10,20,30), stride 2, padding 1, output_padding 1.
const std::vector<float> g6 = {20, 50, 40, 60};

TEST_P(LayersTest, ConvTranspose1dByHand) {
  nn::ConvTranspose1d layer({.in_channels = 1,
                             .out_channels = 1,
                             .kernel_size = 3,
                             .stride = 2,
                             .padding = 1,
                             .output_padding = 1,
                             .bias = false,
                             .tensor = f32_here()});
  layer.load_state_dict({{"weight", from_vector<float>({10, 20, 30}, {1, 1, 3})}});
  EXPECT_EQ(layer(tensor({1, 2}, {1, 1, 2})).to_vector<float>(), g6);
  EXPECT_EQ(layer.forward(tensor({1, 2}, {1, 1, 2}), 3).to_vector<float>(), (std::vector<float>{20, 50, 40}));
}

TEST_P(LayersTest, ConvTranspose2dByHand) {
  nn::ConvTranspose2d layer({.in_channels = 1,
                             .out_channels = 1,
                             .kernel_size = {3, 1},
                             .stride = {2, 1},
                             .padding = {1, 0},
                             .output_padding = {1, 0},
                             .bias = false,
                             .tensor = f32_here()});
  layer.load_state_dict({{"weight", from_vector<float>({10, 20, 30}, {1, 1, 3, 1})}});
  EXPECT_EQ(layer(tensor({1, 2}, {1, 1, 2, 1})).to_vector<float>(), g6);
}

TEST_P(LayersTest, ConvTranspose3dByHand) {
  nn::ConvTranspose3d layer({.in_channels = 1,
                             .out_channels = 1,
                             .kernel_size = {1, 3, 1},
                             .stride = {1, 2, 1},
                             .padding = {0, 1, 0},
                             .output_padding = {0, 1, 0},
                             .tensor = f32_here()});
  layer.load_state_dict({{"weight", from_vector<float>({10, 20, 30}, {1, 1, 1, 3, 1})},
                         {"bias", from_vector<float>({0}, {1})}});
  EXPECT_EQ(layer(tensor({1, 2}, {1, 1, 1, 2, 1})).to_vector<float>(), g6);
}

TEST_P(LayersTest, PoolingByHand) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 2, 2});
  nn::MaxPool3d max({.kernel_size = 2});
  nn::AvgPool3d avg({.kernel_size = {1, 2, 2}, .stride = 1});
  EXPECT_EQ(max(x).to_vector<float>(), (std::vector<float>{8}));
  EXPECT_EQ(avg(x).to_vector<float>(), (std::vector<float>{2.5, 6.5}));
  EXPECT_TRUE(max.parameters().empty() && avg.state_dict().empty());
}

TEST_P(LayersTest, UpsampleByHand) {
  const Tensor x = tensor({0, 8}, {1, 1, 1, 1, 2});
  nn::Upsample nearest({.scale_factor = {{1, 1, 2}}});
  nn::Upsample linear({.size = {{1, 2, 4}}, .mode = InterpolateOptions::Mode::trilinear});
  EXPECT_EQ(nearest(x).to_vector<float>(), (std::vector<float>{0, 0, 8, 8}));
  EXPECT_EQ(linear(x).to_vector<float>(), (std::vector<float>{0, 2, 6, 8, 0, 2, 6, 8}));
}

TEST_P(LayersTest, ActivationsByHand) {
  const Tensor x = tensor({-2, 0, 3}, {3});
  EXPECT_EQ(nn::ReLU()(x).to_vector<float>(), (std::vector<float>{0, 0, 3}));
  EXPECT_EQ(nn::LeakyReLU(0.5)(x).to_vector<float>(), (std::vector<float>{-1, 0, 3}));
  const auto near = [&](auto layer, double at_minus_2, double at_0, double at_3) {
    const std::vector<double> y = Tensor(layer(x.to(f64))).to_vector<double>();
    EXPECT_NEAR(y[0], at_minus_2, 1e-12);
    EXPECT_NEAR(y[1], at_0, 1e-12);
    EXPECT_NEAR(y[2], at_3, 1e-12);
  };
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const auto phi = [](double v) { return (1 + std::erf(v / std::sqrt(2.0))) / 2; };
  near(nn::Sigmoid(), sigmoid(-2), 0.5, sigmoid(3));
  near(nn::Tanh(), std::tanh(-2), 0, std::tanh(3));
  near(nn::SiLU(), -2 * sigmoid(-2), 0, 3 * sigmoid(3));
  near(nn::GELU(), -2 * phi(-2), 0, 3 * phi(3));
  const auto softplus = [](double v) { return std::log1p(std::exp(v)); };
  near(nn::Mish(), -2 * std::tanh(softplus(-2)), 0, 3 * std::tanh(softplus(3)));
  near(nn::ELU(), std::exp(-2) - 1, 0, 3);
  near(nn::ELU(0.5), (std::exp(-2) - 1) / 2, 0, 3);
  near(nn::Softplus(), softplus(-2), softplus(0), softplus(3));
  near(nn::Softplus(2, 5), softplus(-4) / 2, softplus(0) / 2, 3);
  near(nn::Hardtanh(), -1, 0, 1);
  near(nn::Hardtanh(-3, 2), -2, 0, 2);
  near(nn::ReLU6(), 0, 0, 3);
  near(nn::Hardsigmoid(), 1. / 6, 0.5, 1);
  near(nn::Hardswish(), -2. / 6, 0, 3);
  const double total = std::exp(-2) + 1 + std::exp(3);
  near(nn::Softmax(0), std::exp(-2) / total, 1 / total, std::exp(3) / total);
}

}  // namespace
}  // namespace vox

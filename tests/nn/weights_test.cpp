#include "tests/support/test.h"

// Initial weights, nn::WeightNorm and nn::SpectralNorm.

namespace vox {
namespace {

using Names = std::vector<std::string>;

DEVICE_SUITE(ReparametrizeTest);

TEST_P(ReparametrizeTest, WeightNormStartsWithTheWeightAndHasPyTorchsNames) {
  for (const std::optional<int64_t>& dim : {std::optional<int64_t>(0), std::optional<int64_t>(1), {}}) {
    nn::Conv3d conv({.in_channels = 2, .out_channels = 3, .kernel_size = 2, .tensor = on(f64)}),
        same({.in_channels = 2, .out_channels = 3, .kernel_size = 2, .tensor = on(f64)});
    same.load_state_dict(conv.state_dict());
    nn::WeightNorm<nn::Conv3d> layer(std::move(conv), {.dim = dim});
    EXPECT_EQ(names_of(layer.named_parameters()), (Names{"bias", "weight_g", "weight_v"}));
    EXPECT_EQ(layer.weight_g.shape(), !dim        ? Shape()
                                      : *dim == 0 ? Shape({3, 1, 1, 1, 1})
                                                  : Shape({1, 2, 1, 1, 1}));
    const Tensor x = normal({2, 2, 3, 3, 3}, on(f64));
    EXPECT_TRUE(allclose(layer(x), same(x), 1e-12, 1e-14));
    std::vector<Tensor> inputs = layer.parameters();
    inputs.push_back(normal({1, 2, 2, 3, 2}, on(f64)).set_requires_grad());
    EXPECT_TRUE(autograd::gradcheck([&](const std::vector<Tensor>& in) { return layer(in.back()); }, inputs));
  }
}

TEST_P(ReparametrizeTest, WeightNormByHand) {
  nn::WeightNorm<nn::Linear> layer(
      nn::Linear({.in_features = 2, .out_features = 2, .bias = false, .tensor = {f64}}));
  layer.to(device());
  EXPECT_EQ(names_of(layer.named_parameters()), (Names{"weight_g", "weight_v"}));
  layer.load_state_dict({{"weight_g", from_vector<double>({10, 1}, {2, 1})},
                         {"weight_v", from_vector<double>({3, 4, 0, 2}, {2, 2})}});
  expect_near(layer(ones({1, 2}, on(f64))), {14, 1}, 5e-14);  // (6, 8) and (0, 1)
}

TEST_P(ReparametrizeTest, TrainsInASequentialAndInSixteenBits) {
  nn::Sequential net{nn::WeightNorm(nn::Linear({.in_features = 3, .out_features = 4})), nn::ReLU(),
                     nn::SpectralNorm(nn::Linear({.in_features = 4, .out_features = 1}))};
  net.to(device());
  EXPECT_EQ(names_of(net.named_parameters()),
            (Names{"0.bias", "0.weight_g", "0.weight_v", "2.bias", "2.weight_orig"}));
  EXPECT_EQ(names_of(net.named_buffers()), (Names{"2.weight_u", "2.weight_v"}));
  const Tensor x = normal({8, 3}, on(f32)), target = normal({8, 1}, on(f32));
  optim::SGD sgd(net.parameters(), {.lr = 0.05});
  double first = 0, last = 0;
  for (int i = 0; i < 20; ++i) {
    sgd.zero_grad();
    Tensor loss = mse_loss(net(x), target);
    loss.backward();
    sgd.step();
    (i == 0 ? first : last) = loss.item();
  }
  EXPECT_LT(last, first);
  net.to(bf16);
  EXPECT_EQ(net(x.to(bf16)).dtype(), bf16);
  net.eval();
  net(x.to(bf16)).sum().backward();
  for (const Tensor& p : net.parameters()) EXPECT_EQ(p.grad().dtype(), bf16);
}

// One step of the power method for these numbers, evaluated in Python.
TEST_P(ReparametrizeTest, SpectralNormOfOneStep) {
  nn::SpectralNorm<nn::Linear> layer(
      nn::Linear({.in_features = 3, .out_features = 2, .bias = false, .tensor = on(f64)}));
  layer.load_state_dict({{"weight_orig", from_vector<double>({1, 2, -1, 0.5, -1, 3}, {2, 3})},
                         {"weight_u", from_vector<double>({0.6, -0.8}, {2})},
                         {"weight_v", ones({3})}});
  const Tensor x = make({1, 0, 0, 0, 1, 0, 0, 0, 1}, {3, 3});
  const Tensor y = layer(x).transpose(0, 1).contiguous();  // the weight
  const Doubles expected{0.2764303027466228, 0.5528606054932456,  -0.2764303027466228,
                         0.1382151513733114, -0.2764303027466228, 0.8292909082398683};
  expect_near(y.reshape({6}), expected, 5e-14);
  expect_near(layer.weight_u, {0.5511621049954415, -0.8343981867292102}, 5e-14);
  expect_near(layer.weight_v, {0.055384877562171114, 0.5538487756217112, -0.830773163432567}, 5e-14);
  layer.eval();
  EXPECT_TRUE(same_bits(layer(x), layer(x)));
  expect_near(layer.weight_u, {0.5511621049954415, -0.8343981867292102}, 5e-14);
  EXPECT_TRUE(autograd::gradcheck([&](const std::vector<Tensor>&) { return layer(x); }, layer.parameters()));
  layer.train();
  const Tensor first = layer(x);
  layer(x);  // writes to weight_u and weight_v
  EXPECT_NO_THROW(first.sum().backward());
}

TEST_P(ReparametrizeTest, SpectralNormFindsTheLargestSingularValue) {
  manual_seed(1);
  nn::SpectralNorm<nn::ConvTranspose3d> layer(
      nn::ConvTranspose3d({.in_channels = 4, .out_channels = 3, .kernel_size = 2, .tensor = on(f32)}),
      {.n_power_iterations = 50});
  EXPECT_EQ(layer.weight_u.shape(), Shape({3})) << "the rows are output channels";
  EXPECT_EQ(layer.weight_v.shape(), Shape({4 * 8}));
  const Tensor x = normal({1, 4, 2, 2, 2}, on(f32));
  const Tensor y = layer(x);
  EXPECT_EQ(layer(x, Triple(3)).shape(), y.shape());
  // With u, the weight as a matrix has a gain of 1; no other vector has more.
  const Tensor w = layer.weight_orig.detach().transpose(0, 1).reshape({3, -1});
  const double sigma = norm(matmul(layer.weight_u, w)).item();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Tensor v = normal({3}, on(f32), seed);
    EXPECT_LE(norm(matmul(v / norm(v), w)).item(), sigma * (1 + 1e-5));
  }
  EXPECT_EQ(layer.describe(), "SpectralNorm(ConvTranspose3d(4, 3, kernel_size=(2,2,2)))");
  EXPECT_ERRORS(ShapeError, nn::SpectralNorm(nn::Linear({.in_features = 1, .out_features = 1}), {.dim = 2}),
                nn::WeightNorm(nn::Linear({.in_features = 1, .out_features = 1}), {.dim = -1}));
}

TEST(InitTest, FansCountTheKernel) {
  const Tensor w = zeros({6, 4, 2, 3, 5});
  EXPECT_EQ(nn::init::fan_in(w), 4 * 30);
  EXPECT_EQ(nn::init::fan_out(w), 6 * 30);
  EXPECT_EQ(nn::init::fan_in(zeros({6, 4})), 4);
  EXPECT_THROW(nn::init::fan_in(zeros({6})), ShapeError);
}

// Standard errors with 25600 draws: mean std/160, std std/226 at most.
TEST(InitTest, DistributionsHaveTheirMoments) {
  manual_seed(3);
  Tensor w = zeros({64, 100, 2, 2, 1}, {.dtype = f64});
  nn::init::kaiming_normal_(w);
  EXPECT_NEAR(mean(w).item(), 0, 5 * std::sqrt(2.0 / 400) / 160);
  EXPECT_NEAR(vox::std(w).item() / std::sqrt(2.0 / 400), 1, 5 / 226.0);

  nn::init::xavier_uniform_(w);
  const double bound = std::sqrt(6.0 / (400 + 256));
  EXPECT_LE(max(abs(w)).item(), bound);
  EXPECT_NEAR(vox::std(w).item() / (bound / std::sqrt(3)), 1, 5 / 226.0);

  nn::init::uniform_(w, 2, 3);
  EXPECT_NEAR(mean(w).item(), 2.5, 5 * std::sqrt(1 / 12.0) / 160);
  nn::init::normal_(w, -1, 0.5);
  EXPECT_NEAR(mean(w).item(), -1, 5 * 0.5 / 160);
  EXPECT_NEAR(vox::std(w).item(), 0.5, 5 * 0.5 / 226);
}

TEST(InitTest, ATruncatedNormalHasItsMomentsAndBounds) {
  manual_seed(3);
  Tensor w = zeros({25600}, {.dtype = f64});
  nn::init::trunc_normal_(w, 3, 2, 1, 7);  // 3 + 2 z with z in [-1, 2], whose mean is 0.2296 and std 0.7209
  EXPECT_NEAR(mean(w).item(), 3 + 2 * 0.22963717909132897, 5 * 1.44 / 160);
  EXPECT_NEAR(vox::std(w).item(), 2 * 0.7209455868590458, 5 * 1.44 / 160);
  for (double v : w.to_vector<double>()) EXPECT_TRUE(v >= 1 && v <= 7);
  // The whole line: deciles are those of the normal distribution.
  nn::init::trunc_normal_(w, 0, 1, -40, 40);
  Doubles v = w.to_vector<double>();
  std::sort(v.begin(), v.end());
  EXPECT_NEAR(v[25600 / 2], 0, 5 * 1.2533 / 160);
  EXPECT_NEAR(v[25600 / 10 * 9], 1.2815515655446008, 5 * 1.71 / 160);
  nn::init::trunc_normal_(w, 0, 1, 30, 31);  // beyond the precision of the distribution: a bound
  for (double x : w.to_vector<double>()) EXPECT_TRUE(x >= 30 && x <= 31);
  EXPECT_ERRORS(ValueError, nn::init::trunc_normal_(w, 0, 0), nn::init::trunc_normal_(w, 0, 1, 2, -2));
}

TEST(InitTest, IcnrRepeatsTheChannelsOfOneCell) {
  Tensor w = zeros({16, 3, 1, 2, 3});
  nn::init::icnr_(w, 2);
  for (int64_t c = 0; c < 16; ++c) EXPECT_TRUE(equal(w[c], w[c / 8 * 8])) << c;
  EXPECT_FALSE(equal(w[0], w[8]));
  EXPECT_THROW(nn::init::icnr_(w, 3), ShapeError);
  EXPECT_THROW(nn::init::icnr_(w, 0), ValueError);
}

TEST(InitTest, WritesAParameterInPlace) {
  Tensor w = ones({3});
  w.set_requires_grad(true);
  const Tensor same = w;
  nn::init::uniform_(w, 5, 5);
  EXPECT_EQ(same.to_vector<float>(), (Floats{5, 5, 5}));
  EXPECT_TRUE(w.requires_grad() && w.is_leaf());
  EXPECT_ERRORS(ValueError, nn::init::uniform_(w, 1, 0), nn::init::normal_(w, 0, -1));
}

}  // namespace
}  // namespace vox

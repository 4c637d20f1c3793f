#include "examples/06_nnunet/architectures.h"
#include "tests/nn/layers.h"

// Networks of other authors, trained for six steps in f64: their losses are PyTorch's, as printed by
// tests/reference/twins.py, from which weights and data follow by a formula.

namespace vox {
namespace {

/// Of -0.5 to 0.5, for tensor k.
Tensor numbers(int64_t k, const Shape& shape) {
  Doubles values(static_cast<size_t>(checked_numel("numbers", shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((static_cast<int64_t>(i) * 37 + k * 101 + 11) % 1009) / 1009 - 0.5;
  return from_vector(values, shape);
}

Tensor classes(int64_t count, const Shape& shape) {
  Ints values(static_cast<size_t>(checked_numel("classes", shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<int64_t>(i) * 7919 + 13) % 101 % count;
  return from_vector(values, shape);
}

/// Parameters by the order of their names, which must be PyTorch's.
void start(nn::Module& network, Device device) {
  network.to(f64);
  nn::StateDict state;
  for (const auto& [name, p] : network.state_dict()) {
    const Tensor n = numbers(std::ssize(state) + 1, p.shape());
    const auto fan_in = static_cast<double>(p.numel() / p.shape()[0]);
    state[name] = p.rank() > 1 ? n * (4 / std::sqrt(fan_in)) : n * 0.25 + (name.ends_with("weight") ? 1 : 0);
  }
  network.load_state_dict(state);
  network.to(device);
}

template <class Loss>
Doubles losses_of(nn::Module& network, optim::Optimizer& optimizer, double norm, Loss loss) {
  Doubles losses;
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    const Tensor y = loss();
    y.backward();
    optim::clip_grad_norm_(network.parameters(), norm);
    optimizer.step();
    losses.push_back(y.item());
  }
  return losses;
}

Doubles residual_encoder_unet(Device device) {
  nnunet::Architecture a;
  a.residual = true;
  a.features = {4, 6, 8}, a.blocks = {1, 2, 2}, a.decoder_convs = {1, 1};
  a.kernel_sizes = {{1, 3, 3}, 3, 3}, a.strides = {1, {1, 2, 2}, 2};
  nnunet::UNet network(a, 1, 3);
  start(network, device);
  const Tensor x = (numbers(0, {2, 1, 4, 8, 8}) * 2).to(device);
  const Tensor target = classes(3, {2, 4, 8, 8}).to(device);
  const auto criterion = [](const Tensor& scores, const Tensor& t) {
    return cross_entropy(scores, t) + dice_loss(scores, t, {.softmax = true, .include_background = false});
  };
  optim::SGD optimizer(network.parameters(),
                       {.lr = 0.01, .momentum = 0.99, .weight_decay = 3e-5, .nesterov = true});
  return losses_of(network, optimizer, 12, [&] {
    const std::vector<Tensor> scores = network.forward(x, true);
    const Tensor half = target.slice(2, 0, {}, 2).slice(3, 0, {}, 2);
    return (2 * criterion(scores[0], target) + criterion(scores[1], half)) / 3;
  });
}

nn::Conv3d conv(int64_t in, int64_t out, int64_t kernel = 1, int64_t stride = 1, int64_t groups = 1) {
  return nn::Conv3d(testing::conv<nn::Conv3d>(in, out, kernel, stride, kernel / 2, 1, groups));
}
nn::ConvTranspose3d conv_transpose(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups) {
  return nn::ConvTranspose3d(
      transposed<nn::ConvTranspose3d>(in, out, kernel, stride, kernel / 2, 0, 1, groups));
}

/// Resample is the depthwise convolution at the front.
template <class Resample>
struct MedNeXtBlock : nn::Module {
  Resample conv1;
  nn::GroupNorm norm;
  nn::Conv3d conv2, conv3;
  Tensor beta, gamma;
  VOXGRAD_MODULE(conv1, norm, conv2, conv3)

  MedNeXtBlock(Resample first, int64_t in, int64_t out, int64_t expansion, bool responds = false)
      : conv1(std::move(first)),
        norm({.num_groups = in, .num_channels = in}),
        conv2(conv(in, expansion * in)),
        conv3(conv(expansion * in, out)) {
    if (!responds) return;
    beta = register_parameter("global_resp_beta", zeros({1, expansion * in, 1, 1, 1}));
    gamma = register_parameter("global_resp_gamma", zeros({1, expansion * in, 1, 1, 1}));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = gelu(conv2(norm(conv1(x))));
    if (gamma.defined()) {
      const Tensor response = vox::norm(y, 2, {2, 3, 4}, true);
      y = gamma * (y * (response / (response.mean(1, true) + 1e-6))) + beta + y;
    }
    return conv3(y);
  }
};

struct Residual : MedNeXtBlock<nn::Conv3d> {
  Residual(int64_t channels, int64_t expansion, bool responds = false)
      : MedNeXtBlock(conv(channels, channels, 3, 1, channels), channels, channels, expansion, responds) {}
  Tensor operator()(const Tensor& x) { return x + MedNeXtBlock::operator()(x); }
};

struct Down : MedNeXtBlock<nn::Conv3d> {
  nn::Conv3d res_conv;
  VOXGRAD_MODULE(conv1, norm, conv2, conv3, res_conv)
  Down(int64_t in, int64_t out)
      : MedNeXtBlock(conv(in, in, 3, 2, in), in, out, 2), res_conv(conv(in, out, 1, 2)) {}
  Tensor forward(const Tensor& x) { return MedNeXtBlock::forward(x) + res_conv(x); }
};

struct Up : MedNeXtBlock<nn::ConvTranspose3d> {
  nn::ConvTranspose3d res_conv;
  VOXGRAD_MODULE(conv1, norm, conv2, conv3, res_conv)
  Up(int64_t in, int64_t out)
      : MedNeXtBlock(conv_transpose(in, in, 3, 2, in), in, out, 2),
        res_conv(conv_transpose(in, out, 1, 2, 1)) {}
  Tensor forward(const Tensor& x) {
    const Ints front{1, 0, 1, 0, 1, 0};
    return pad(MedNeXtBlock::forward(x), front) + pad(res_conv(x), front);
  }
};

struct Out : nn::Module {
  nn::ConvTranspose3d conv_out;
  VOXGRAD_MODULE(conv_out)
  Out(int64_t in, int64_t out) : conv_out(conv_transpose(in, out, 1, 1, 1)) {}
  Tensor forward(const Tensor& x) { return conv_out(x); }
};

struct MedNeXt : nn::Module {
  nn::Conv3d stem = conv(2, 4);
  Residual encoder{4, 2}, middle{8, 3, true}, decoder{4, 2};
  Down down{4, 8};
  Up up{8, 4};
  Out out{4, 3};
  VOXGRAD_MODULE(stem, encoder, down, middle, up, decoder, out)
  Tensor forward(const Tensor& input) {
    const Tensor x = encoder(stem(input));
    return out(decoder(x + up(middle(down(x)))));
  }
};

Doubles mednext(Device device) {
  MedNeXt network;
  start(network, device);
  const Tensor x = (numbers(0, {2, 2, 6, 8, 4}) * 2).to(device);
  const Tensor target = classes(3, {2, 6, 8, 4}).to(device);
  optim::AdamW optimizer(network.parameters(), {.lr = 0.01, .weight_decay = 0.05});
  return losses_of(network, optimizer, 1,
                   [&] { return cross_entropy(network(x), target, {.label_smoothing = 0.1}); });
}

struct RadianceGrid : nn::Module {
  Tensor volume = register_parameter("volume", zeros({1, 4, 4, 5, 6}));
  Tensor pose = register_parameter("pose", zeros({1, 3, 4}));
  nn::Sequential density{linear(4, 8), nn::SiLU(), linear(8, 5)};
  nn::Sequential colour{linear(4 + 4, 8), nn::ReLU(), linear(8, 3)};
  VOXGRAD_MODULE(density, colour)

  Tensor forward(int64_t depth, int64_t height, int64_t width) {
    const Tensor theta = pose * 0.2 + eye(4, pose.options()).slice(0, 0, 3);
    const Tensor grid = affine_grid(theta, {1, 1, depth, height, width});
    const Tensor features =
        grid_sample(volume, grid, {.padding = GridSampleOptions::Padding::border, .align_corners = true});
    const Tensor points = features[0].flatten(1).transpose(0, 1).reshape({depth, height * width, 4});
    const Tensor hidden = density(points);
    const Tensor w = grid[0].slice(-1, 0, 2).reshape({depth, height * width, 2}) * std::numbers::pi;
    const Tensor shade = sigmoid(colour(cat({hidden.slice(-1, 1), sin(w), cos(w)}, -1)));
    const Tensor alpha = 1 - exp(-softplus(hidden.select(-1, 0)));
    const Tensor ahead = cat({ones_like(alpha.slice(0, 0, 1)), 1 - alpha + 1e-10}, 0);
    const Tensor clear = cumprod(ahead, 0).slice(0, 0, -1);
    return ((alpha * clear).unsqueeze(-1) * shade).sum(0);
  }
};

Doubles radiance_grid(Device device) {
  RadianceGrid network;
  start(network, device);
  const Tensor target = (numbers(0, {30, 3}) + 0.5).to(device);
  optim::Adam optimizer(network.parameters(), {.lr = 0.05});
  return losses_of(network, optimizer, 1, [&] {
    const auto differences = [&](int64_t dim) {
      return network.volume.slice(dim, 1) - network.volume.slice(dim, 0, -1);
    };
    const Tensor steps = differences(2);
    const Tensor rough = (steps * steps).mean() + abs(differences(-1)).mean();
    return mse_loss(network(7, 5, 6), target) + 0.01 * rough;
  });
}

struct Twin {
  const char* name;
  Doubles (*train)(Device);
  Doubles losses;  ///< PyTorch's
};

DEVICE_SUITE(TwinsTest);

TEST_P(TwinsTest, TrainAsInPyTorch) {
  const Twin twins[] = {
      {"residual_encoder_unet",
       residual_encoder_unet,
       {1.933031205954246, 1.930388119884095, 1.926494131360053, 1.921443892759602, 1.915327539249218,
        1.908245095176014}},
      {"mednext",
       mednext,
       {1.381678056996113, 1.262032559618835, 1.183353394594025, 1.138567597302659, 1.114717727983802,
        1.101333775599219}},
      {"radiance_grid",
       radiance_grid,
       {0.1074685779250673, 0.09445393719344082, 0.08827737911137641, 0.08596211255253612,
        0.08467411114688178, 0.08213658661252349}},
  };
  for (const auto& [name, train, expected] : twins) {
    const Doubles losses = train(device());
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t step = 0; step < expected.size(); ++step)
      EXPECT_NEAR(losses[step], expected[step], 1e-11) << name << ", step " << step;
  }
}

}  // namespace
}  // namespace vox

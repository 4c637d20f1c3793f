#include "tests/support/test.h"

// Two networks as a user of PyTorch ports them. docs/porting.md quotes this file.

namespace {

using namespace vox;

nn::Conv3d conv3(int64_t in, int64_t out, int64_t stride = 1) {
  return nn::Conv3d({.in_channels = in,
                     .out_channels = out,
                     .kernel_size = 3,
                     .stride = stride,
                     .padding = 1,
                     .bias = false});
}

struct BasicBlock : nn::Module {
  nn::Conv3d conv1, conv2;
  nn::BatchNorm3d bn1, bn2;
  std::optional<nn::Sequential> downsample;
  VOXGRAD_MODULE(conv1, bn1, conv2, bn2, downsample)

  BasicBlock(int64_t in, int64_t out, int64_t stride)
      : conv1(conv3(in, out, stride)),
        conv2(conv3(out, out)),
        bn1({.num_features = out}),
        bn2({.num_features = out}) {
    if (stride == 1) return;
    downsample = nn::Sequential{
        nn::Conv3d(
            {.in_channels = in, .out_channels = out, .kernel_size = 1, .stride = stride, .bias = false}),
        nn::BatchNorm3d({.num_features = out})};
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
    return relu(y + (downsample ? (*downsample)(x) : x));
  }
};

nn::Sequential stage(int64_t in, int64_t out, int64_t stride) {
  return nn::Sequential{BasicBlock(in, out, stride), BasicBlock(out, out, 1)};
}

struct ResNet : nn::Module {
  nn::Conv3d conv1{{.in_channels = 1,
                    .out_channels = 4,
                    .kernel_size = 7,
                    .stride = {1, 2, 2},
                    .padding = 3,
                    .bias = false}};
  nn::BatchNorm3d bn1{{.num_features = 4}};
  nn::MaxPool3d maxpool{{.kernel_size = 3, .stride = 2, .padding = 1}};
  nn::Sequential layer1 = stage(4, 4, 1), layer2 = stage(4, 8, 2);
  nn::AdaptiveAvgPool3d avgpool{1};
  nn::Flatten flatten;
  nn::Linear fc{{.in_features = 8, .out_features = 3}};
  VOXGRAD_MODULE(conv1, bn1, maxpool, layer1, layer2, avgpool, flatten, fc)

  Tensor forward(const Tensor& x) {
    const Tensor y = layer2(layer1(maxpool(relu(bn1(conv1(x))))));
    return fc(flatten(avgpool(y)));
  }
};

struct AttentionGate : nn::Module {
  nn::Conv3d theta, phi, psi;
  VOXGRAD_MODULE(theta, phi, psi)
  AttentionGate(int64_t x, int64_t g, int64_t mid)
      : theta({.in_channels = x, .out_channels = mid, .kernel_size = 1, .bias = false}),
        phi({.in_channels = g, .out_channels = mid, .kernel_size = 1}),
        psi({.in_channels = mid, .out_channels = 1, .kernel_size = 1}) {}
  Tensor forward(const Tensor& x, const Tensor& g) {
    const Tensor up = interpolate(
        phi(g), {.size = {x.size(2), x.size(3), x.size(4)}, .mode = InterpolateOptions::Mode::trilinear});
    return x * sigmoid(psi(relu(theta(x) + up)));
  }
};

struct Level : nn::Module {
  nn::ConvTranspose3d up;
  AttentionGate gate;
  nn::Conv3d conv;
  VOXGRAD_MODULE(up, gate, conv)
  Level(int64_t low, int64_t c)
      : up({.in_channels = low, .out_channels = c, .kernel_size = 2, .stride = 2}),
        gate(c, low, c / 2),
        conv(conv3(2 * c, c)) {}
  Tensor forward(const Tensor& skip, const Tensor& g) { return conv(cat({gate(skip, g), up(g)}, 1)); }
};

struct AttentionUNet : nn::Module {
  nn::ModuleList<nn::Conv3d> encoder{conv3(1, 4), conv3(4, 8, 2), conv3(8, 16, 2)};
  nn::ModuleList<Level> decoder{Level(8, 4), Level(16, 8)};
  nn::ModuleList<nn::Conv3d> heads{conv3(4, 2), conv3(8, 2)};
  VOXGRAD_MODULE(encoder, decoder, heads)

  /// The result, and a second one at half the resolution ("deep supervision").
  std::tuple<Tensor, Tensor> forward(Tensor x) {
    std::vector<Tensor> skips;
    for (nn::Conv3d& down : encoder) skips.push_back(x = leaky_relu(down(x)));
    const Tensor half = decoder[1](skips[1], x);
    const auto top = [&](const Tensor& skip, const Tensor& g) { return decoder[0](skip, g); };
    const Tensor full = is_training() ? checkpoint(top, skips[0], half) : top(skips[0], half);
    return {heads[0](full), heads[1](half)};
  }
};

std::unique_ptr<optim::AdamW> optimizer_of(nn::Module& net) {
  std::vector<Tensor> decayed, others;
  for (const Tensor& p : net.parameters()) (p.rank() > 1 ? decayed : others).push_back(p);
  auto optimizer =
      std::make_unique<optim::AdamW>(decayed, optim::AdamW::Options{.lr = 1e-3, .weight_decay = 0.05});
  optimizer->add_group(others, {.lr = 1e-3, .weight_decay = 0});
  return optimizer;
}

double train(ResNet& net, optim::AdamW& optimizer, const Tensor& x, const Tensor& classes, int64_t first,
             int64_t last) {
  double loss = 0;
  for (int64_t step = first; step < last; ++step) {
    optimizer.set_lr(optim::cosine_lr(step, {.base_lr = 1e-3, .total_steps = 10, .warmup_steps = 2}));
    optimizer.zero_grad();
    const Tensor y = cross_entropy(net(x), classes, {.label_smoothing = 0.1});
    y.backward();
    optim::clip_grad_norm_(net.parameters(), 1.0);
    optimizer.step();
    loss = y.item();
  }
  return loss;
}

TEST(PortingTest, NamesAreThoseOfPyTorch) {
  const std::vector<std::string> names = names_of(ResNet().state_dict());
  for (const char* name :
       {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight",
        "layer2.0.downsample.1.num_batches_tracked", "layer2.1.bn2.bias", "fc.bias"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  EXPECT_EQ(names.size(), 4 * 12u + 6 + 6 + 2);
  const std::vector<std::string> unet = names_of(AttentionUNet().state_dict());
  for (const char* name : {"encoder.2.weight", "decoder.1.gate.psi.bias", "heads.0.weight"})
    EXPECT_EQ(std::count(unet.begin(), unet.end(), name), 1) << name;
}

TEST(PortingTest, AResumedRunHasTheSameBits) {
  manual_seed(1);
  const Tensor x = randn({2, 1, 8, 16, 16}), classes = from_vector<int64_t>({0, 2}, {2});
  const auto file = std::filesystem::temp_directory_path() / "voxgrad_porting_test.safetensors";
  ResNet net;
  const auto optimizer = optimizer_of(net);
  train(net, *optimizer, x, classes, 0, 2);

  nn::save(file, net.state_dict());
  nn::save(file.string() + ".optimizer", optimizer->state_dict());
  ResNet again;
  again.load_state_dict(nn::load(file).tensors);
  const auto resumed = optimizer_of(again);
  resumed->load_state_dict(nn::load(file.string() + ".optimizer").tensors);

  const double expected = train(net, *optimizer, x, classes, 2, 5);
  EXPECT_EQ(train(again, *resumed, x, classes, 2, 5), expected);
  std::filesystem::remove(file);
  std::filesystem::remove(file.string() + ".optimizer");
}

TEST(PortingTest, AMovingAverageTakesTheNetworksPlace) {
  ResNet net;
  const Tensor before = net.fc.bias.detach().clone();
  const auto step = [&] {
    const auto guard = no_grad();
    net.fc.bias.fill_(1);
  };
  optim::ExponentialMovingAverage average(net, {.decay = 0.75});
  step();
  average.update();
  average.swap();
  EXPECT_TRUE(allclose(net.fc.bias, 0.75 * before + 0.25));
}

TEST(PortingTest, TwoResultsAndMixedPrecision) {
  manual_seed(2);
  AttentionUNet net;
  const Tensor x = randn({1, 1, 8, 8, 8}), target = randint(0, 2, {1, 8, 8, 8}, {.dtype = i64});
  optim::SGD optimizer(net.parameters(),
                       {.lr = 0.02, .momentum = 0.9, .weight_decay = 3e-5, .nesterov = true});
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const auto guard = autocast(bf16);
      const auto [full, half] = net(x);
      EXPECT_EQ(full.dtype(), bf16);
      const Tensor small = target.slice(1, 0, {}, 2).slice(2, 0, {}, 2).slice(3, 0, {}, 2);
      loss = cross_entropy(full, target) + 0.5 * cross_entropy(half, small);
    }
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item());
  }
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace

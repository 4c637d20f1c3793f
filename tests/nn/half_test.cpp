#include <gtest/gtest.h>

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/dropout.h>
#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/norm.h>
#include <voxgrad/nn/optim/adam.h>
#include <voxgrad/nn/optim/sgd.h>
#include <voxgrad/nn/sequential.h>
#include <voxgrad/nn/serialize.h>
#include <voxgrad/ops/loss.h>

#include "tests/support/devices.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/values.h"

#include <cmath>

// Layers, optimisers and files with bf16 and f16 parameters.

namespace vox {
namespace {

using testing::same_bits;

class HalfModuleTest : public testing::DeviceTest {
 protected:
  testing::TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, HalfModuleTest, testing::devices(), testing::device_name);

TEST_P(HalfModuleTest, SafetensorsBytes) {
  const nn::StateDict tensors{{"h", from_vector<float16>({1, -2}, {2}, device())},
                              {"b", from_vector<bfloat16>({1, 0.5}, {2, 1}, device())},
                              {"f", from_vector<float>({1}, {1}, device())},
                              {"u", from_vector<uint8_t>({7}, {1}, device())}};
  nn::save(folder_ / "x", tensors);
  // In the order of the reference implementation: F32, BF16, F16, U8.
  const std::string json =
      "{\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[4,8]},"
      "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},"
      "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[12,13]}}";
  const std::string bytes = testing::read_bytes(folder_ / "x");
  EXPECT_NE(bytes.find(json), std::string::npos) << bytes;
  EXPECT_EQ(bytes.substr(bytes.size() - 13), std::string("\0\0\x80\x3f\x80\x3f\0\x3f\0\x3c\0\xc0\x07", 13));
  const nn::StateDict loaded = nn::load(folder_ / "x", device()).tensors;
  for (const auto& [name, t] : tensors) EXPECT_TRUE(same_bits(loaded.at(name), t)) << name;
}

TEST_P(HalfModuleTest, LayersComputeInF32AndRoundOnce) {
  for (const DType half : {bf16, f16}) {
    const Tensor x = testing::normal({2, 4, 3, 4, 5}, {f32, device()}).to(half);
    nn::BatchNorm3d norm({.num_features = 4, .tensor = {.dtype = half, .device = device()}});
    nn::BatchNorm3d wide({.num_features = 4, .tensor = {.device = device()}});
    EXPECT_TRUE(same_bits(norm(x).detach(), wide(x.to(f32)).detach().to(half)));
    EXPECT_TRUE(same_bits(norm.running_mean, wide.running_mean.to(half)));
    EXPECT_TRUE(same_bits(norm.running_var, wide.running_var.to(half)));
    norm.eval(), wide.eval(), wide.load_state_dict([&] {
      nn::StateDict state = norm.state_dict();
      for (auto& [name, t] : state) t = is_floating(t.dtype()) ? t.detach().to(f32) : t;
      return state;
    }());
    EXPECT_TRUE(same_bits(norm(x).detach(), wide(x.to(f32)).detach().to(half)));

    default_generator().set_seed(3);
    const Tensor dropped = nn::Dropout({.p = 0.3})(x);
    default_generator().set_seed(3);
    EXPECT_TRUE(same_bits(dropped, nn::Dropout({.p = 0.3})(x.to(f32)).to(half)));
  }
}

/// One step from the same numbers in 16 bits and in f32: equal except for the rounding of the parameter.
template <class O, class Options>
void check_steps(DType half, Device device, const Options& options) {
  Tensor narrow = testing::normal({40}, {f32, device}).to(half).set_requires_grad(true);
  Tensor wide = narrow.detach().to(f32).set_requires_grad(true);
  O narrow_optimizer({narrow}, options), wide_optimizer({wide}, options);
  for (unsigned step = 0; step < 3; ++step) {
    const Tensor g = testing::normal({40}, {f32, device}, step + 9).to(half);
    narrow.set_grad(g), wide.set_grad(g.to(f32));
    narrow_optimizer.step(), wide_optimizer.step();
    EXPECT_TRUE(same_bits(narrow.detach(), wide.detach().to(half))) << "step " << step;
    const auto guard = no_grad();
    wide.copy_(narrow);
  }
  const auto state = narrow_optimizer.state_dict(), expected = wide_optimizer.state_dict();
  ASSERT_EQ(state.size(), expected.size());
  for (const auto& [name, t] : state) {
    EXPECT_TRUE(is_floating(t.dtype()) ? t.dtype() == f32 : t.dtype() == i64) << name;
    EXPECT_TRUE(same_bits(t, expected.at(name))) << name;
  }
  narrow_optimizer.load_state_dict(state);
}
TEST_P(HalfModuleTest, OptimisersComputeAndKeepTheirStateInF32) {
  for (const DType half : {bf16, f16}) {
    check_steps<optim::SGD>(
        half, device(),
        optim::SGD::Options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
    check_steps<optim::Adam>(half, device(), optim::Adam::Options{.lr = 0.01, .weight_decay = 0.1});
    check_steps<optim::AdamW>(half, device(), optim::AdamW::Options{.lr = 0.01});
  }
}

TEST_P(HalfModuleTest, ClipsByTheNormInF32) {
  Tensor p = zeros({4}, {f16, device()}).set_requires_grad(true);
  p.set_grad(full({4}, 1000, {f16, device()}));  // its square exceeds f16
  EXPECT_NEAR(optim::clip_grad_norm_({p}, 1), 2000, 1e-3);
  EXPECT_EQ(p.grad().to(f32).to_vector<float>(), std::vector<float>(4, 0.5));
}

TEST_P(HalfModuleTest, TrainsAndStaysInItsDtype) {
  for (const DType half : {bf16, f16}) {
    default_generator().set_seed(1);
    nn::Sequential net{
        nn::Conv3d({.in_channels = 1, .out_channels = 8, .kernel_size = 3, .padding = 1}),
        nn::BatchNorm3d({.num_features = 8}), nn::ReLU(),
        nn::ConvTranspose3d(
            {.in_channels = 8, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1})};
    net.to(half).to(device());
    optim::Adam adam(net.parameters(), {.lr = 1e-2});
    const Tensor small = rand({2, 1, 4, 4, 4}, {half, device()}), big = interpolate(small, {.size = 8});
    float first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
      adam.zero_grad();
      Tensor loss = mse_loss(net(small), big);
      EXPECT_EQ(loss.dtype(), half);
      loss.backward();
      for (const Tensor& p : net.parameters()) ASSERT_EQ(p.grad().dtype(), half);
      adam.step();
      last = loss.detach().to(f32).item();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.1f * first) << half;
  }
}

}  // namespace
}  // namespace vox

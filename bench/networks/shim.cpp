#include "../common/shim.h"

#include <memory>

#include "../../examples/04_mri_super_resolution/network.h"
#include "../common/missing.h"

// The networks of models.py, with the same names of parameters, and their training steps.

namespace bench {
namespace {

using namespace vox::nn;
using vox::Tensor;
using Net = std::unique_ptr<Module>;

/// What differs between the two U-Nets.
struct UNetStyle {
  bool instance_norm;  ///< instance norm and leaky ReLU, or batch norm and ReLU
  bool strided;        ///< down by the stride of the first convolution of a level, or by max pooling
};

/// Two convolutions of kernel 3, each with norm and activation. The first one may have a stride.
Sequential block(int64_t in, int64_t out, int64_t stride, UNetStyle style) {
  Sequential layers;
  for (int i = 0; i < 2; ++i) {
    layers.push_back(Conv3d({.in_channels = i == 0 ? in : out,
                             .out_channels = out,
                             .kernel_size = 3,
                             .stride = i == 0 ? stride : 1,
                             .padding = 1}));
    if (style.instance_norm) {
      layers.push_back(missing::InstanceNorm3d(out));
      layers.push_back(LeakyReLU(0.01));
    } else {
      layers.push_back(BatchNorm3d({.num_features = out}));
      layers.push_back(ReLU());
    }
  }
  return layers;
}

class UNet final : public Module {
 public:
  UNet(const std::vector<int64_t>& channels, UNetStyle style) : style_(style) {
    for (size_t i = 0; i < channels.size(); ++i) {
      const int64_t stride = style.strided && i > 0 ? 2 : 1;
      down_.push_back(register_module("down" + std::to_string(i),
                                      block(i == 0 ? 1 : channels[i - 1], channels[i], stride, style)));
    }
    for (size_t i = 0; i + 1 < channels.size(); ++i) {
      up_.push_back(register_module(
          "up" + std::to_string(i),
          ConvTranspose3d(
              {.in_channels = channels[i + 1], .out_channels = channels[i], .kernel_size = 2, .stride = 2})));
      merge_.push_back(
          register_module("merge" + std::to_string(i), block(2 * channels[i], channels[i], 1, style)));
    }
    head_ =
        register_module("head", Conv3d({.in_channels = channels[0], .out_channels = 2, .kernel_size = 1}));
  }

  Tensor forward(const Tensor& input) override {
    std::vector<Tensor> skips;
    Tensor x = input;
    for (size_t i = 0; i < down_.size(); ++i) {
      if (i > 0 && !style_.strided) x = vox::max_pool3d(x, {.kernel_size = 2});
      x = (*down_[i])(x);
      skips.push_back(x);
    }
    for (size_t i = up_.size(); i-- > 0;) x = (*merge_[i])(vox::cat({skips[i], (*up_[i])(x)}, 1));
    return (*head_)(x);
  }

 private:
  UNetStyle style_;
  std::vector<std::shared_ptr<Sequential>> down_, merge_;
  std::vector<std::shared_ptr<ConvTranspose3d>> up_;
  std::shared_ptr<Conv3d> head_;
};

Net decoder(const std::vector<int64_t>& channels) {
  auto net = std::make_unique<Sequential>();
  for (size_t i = 0; i + 1 < channels.size(); ++i) {
    const int64_t out = channels[i + 1];
    net->push_back(ConvTranspose3d(
        {.in_channels = channels[i], .out_channels = out, .kernel_size = 4, .stride = 2, .padding = 1}));
    if (out == 1) break;
    net->push_back(BatchNorm3d({.num_features = out}));
    net->push_back(ReLU());
  }
  net->push_back(Sigmoid());
  return net;
}

struct Training {
  Net net;
  std::function<Tensor(const Tensor&, const Tensor&)> loss;
  std::function<std::unique_ptr<vox::optim::Optimizer>(std::vector<Tensor>)> optimizer;
};

Tensor mean_squares(const Tensor& y, const Tensor& target) { return vox::mse_loss(y, target); }
Tensor classes(const Tensor& y, const Tensor& target) { return vox::cross_entropy(y, target); }
std::unique_ptr<vox::optim::Optimizer> adam(std::vector<Tensor> parameters) {
  return std::make_unique<vox::optim::Adam>(std::move(parameters));
}
std::unique_ptr<vox::optim::Optimizer> adamw(std::vector<Tensor> parameters) {
  return std::make_unique<vox::optim::AdamW>(std::move(parameters));
}
std::unique_ptr<vox::optim::Optimizer> nesterov(std::vector<Tensor> parameters) {
  return std::make_unique<vox::optim::SGD>(
      std::move(parameters),
      vox::optim::SGDOptions{.lr = 1e-2, .momentum = 0.99, .weight_decay = 3e-5, .nesterov = true});
}

/// spec.options are the channels of a U-Net's levels, or between a decoder's layers.
Training training(const Spec& spec) {
  if (spec.name == "unet")
    return {std::make_unique<UNet>(spec.options, UNetStyle{false, false}), classes, adamw};
  if (spec.name == "nnunet")
    return {std::make_unique<UNet>(spec.options, UNetStyle{true, true}), classes, nesterov};
  if (spec.name == "decoder") return {decoder(spec.options), mean_squares, adam};
  vox::check<vox::ValueError>(spec.name == "example04", "bench: no network ", spec.name);
  return {std::make_unique<mri::SuperResolution>(), mean_squares, adam};
}

/// f32 parameters for the optimiser, of a network that computes in 16 bits: the mixed form. The network's own
/// parameters are 16-bit copies. (Norms will keep their f32 parameters when voxgrad's norms take them beside
/// a 16-bit input; then the copies of these go.)
class MasterParameters {
 public:
  explicit MasterParameters(const std::vector<Tensor>& parameters) : copies_(parameters) {
    for (const Tensor& p : parameters) masters_.push_back(p.detach().clone().set_requires_grad());
  }
  const std::vector<Tensor>& masters() const { return masters_; }

  void take_gradients() {
    for (size_t i = 0; i < copies_.size(); ++i)
      masters_[i].set_grad(copies_[i].grad().to(masters_[i].dtype()));
  }
  void give_values() {
    const auto guard = vox::no_grad();
    for (size_t i = 0; i < copies_.size(); ++i) copies_[i].copy_(masters_[i]);
  }

 private:
  std::vector<Tensor> copies_, masters_;
};

struct Trainer {
  Training training;
  Tensor input, target;
  std::optional<MasterParameters> masters;
  std::unique_ptr<vox::optim::Optimizer> optimizer;

  Tensor step() {
    training.net->zero_grad();
    Tensor loss = training.loss((*training.net)(input), target);
    loss.backward();
    if (masters) masters->take_gradients();
    optimizer->step();
    if (masters) masters->give_values();
    return loss.detach();
  }
};

}  // namespace

/// One training step, which results in the loss before it. Operands: input, target, and by name the state of
/// the PyTorch network. If the state's dtype is not the input's, the optimiser works on parameters of that
/// dtype, and the network computes in the input's.
Task network(const Spec& spec) {
  auto trainer =
      std::make_shared<Trainer>(Trainer{training(spec), spec.operands.at(0), spec.operands.at(1), {}, {}});
  Module& net = *trainer->training.net;
  StateDict state;
  for (size_t i = 2; i < spec.operands.size(); ++i) state[spec.names[i]] = spec.operands[i];
  net.to(trainer->input.device()).to(spec.operands.at(2).dtype()).load_state_dict(state);
  if (spec.operands[2].dtype() != trainer->input.dtype()) {
    trainer->masters.emplace(net.parameters());
    net.to(trainer->input.dtype());
  }
  trainer->optimizer =
      trainer->training.optimizer(trainer->masters ? trainer->masters->masters() : net.parameters());
  return {[trainer] { return Tensors{trainer->step()}; }};
}

}  // namespace bench

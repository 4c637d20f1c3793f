#include "../common/shim.h"

#include <memory>

#include "../../examples/04_mri_super_resolution/network.h"
#include "unet.h"

// The networks of models.py, with the same names of parameters, and their training steps.

namespace bench {
namespace {

using namespace vox::nn;
using vox::Tensor;

Net decoder(const std::vector<int64_t>& channels) {
  Sequential net;
  for (size_t i = 0; i + 1 < channels.size(); ++i) {
    const int64_t out = channels[i + 1];
    net.push_back(ConvTranspose3d(
        {.in_channels = channels[i], .out_channels = out, .kernel_size = 4, .stride = 2, .padding = 1}));
    if (out == 1) break;
    net.push_back(BatchNorm3d({.num_features = out}));
    net.push_back(ReLU());
  }
  net.push_back(Sigmoid());
  return net;
}

/// spec.options are the channels of a U-Net's levels, or between a decoder's layers.
Net build(const Spec& spec) {
  if (spec.name == "unet" || spec.name == "nnunet") return UNet(spec.options, spec.name == "nnunet");
  if (spec.name == "decoder") return decoder(spec.options);
  vox::check<vox::ValueError>(spec.name == "example04", "bench: no network ", spec.name);
  return mri::SuperResolution();
}

struct Trainer {
  Net net;
  Tensor input, target;
  std::optional<vox::DType> cast_to = {};  // in the mixed form
  std::shared_ptr<vox::optim::Optimizer> optimiser = {};

  Tensor step() {
    net->zero_grad();
    const vox::AutocastGuard autocast(cast_to);
    const Tensor y = net(input);
    Tensor loss = target.dtype() == vox::i64 ? vox::cross_entropy(y, target) : vox::mse_loss(y, target);
    loss.backward();
    optimiser->step();
    return loss.detach();
  }
};

}  // namespace

/// One training step with the optimiser spec.pass; the result is the loss before the step. Operands: input,
/// target, and by name the state of the PyTorch network. The state has the input's dtype, or f32 beside a
/// 16-bit input for the mixed form.
Task network(const Spec& spec) {
  auto trainer = std::make_shared<Trainer>(Trainer{build(spec), spec.operands.at(0), spec.operands.at(1)});
  const vox::DType compute = spec.operands[0].dtype(), parameters = spec.operands.at(2).dtype();
  StateDict state;
  for (size_t i = 2; i < spec.operands.size(); ++i) state[spec.names[i]] = spec.operands[i];
  Module& net = *trainer->net;
  net.to(trainer->input.device()).to(parameters).load_state_dict(state);
  if (parameters != compute) trainer->cast_to = compute;
  trainer->optimiser = optimiser(spec.pass, net.parameters());
  return {[trainer] { return Tensors{trainer->step()}; }};
}

}  // namespace bench

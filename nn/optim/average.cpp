#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/nn/optim/average.h>

namespace vox::optim {

ExponentialMovingAverage::ExponentialMovingAverage(const nn::Module& network, const AverageOptions& options)
    : decay_(options.decay), values_(network.state_dict()) {
  check<ValueError>(decay_ >= 0 && decay_ < 1, "ExponentialMovingAverage: decay must be in [0, 1), got ",
                    decay_);
  for (const auto& [name, value] : values_)
    average_.emplace(name, value.detach().to(opmath(value.dtype())).clone());
}

void ExponentialMovingAverage::update() {
  const auto guard = no_grad();
  for (auto& [name, average] : average_) {
    const Tensor value = values_.at(name).detach().to(average.device()).to(average.dtype());
    if (is_floating(average.dtype()))
      average.mul_(decay_).add_(value, 1 - decay_);
    else
      average.copy_(value);
  }
}

void ExponentialMovingAverage::swap() {
  const auto guard = no_grad();
  for (auto& [name, average] : average_) {
    Tensor value = values_.at(name);
    const Tensor before = value.detach().clone();
    value.copy_(average);
    average.copy_(before);
  }
}

nn::StateDict ExponentialMovingAverage::state_dict() const {
  nn::StateDict state;
  for (const auto& [name, average] : average_) state.emplace(name, average.clone());
  return state;
}

void ExponentialMovingAverage::load_state_dict(const nn::StateDict& state) {
  constexpr const char* function = "ExponentialMovingAverage::load_state_dict";
  check<ValueError>(state.size() == average_.size(), function, ": the network has ", average_.size(),
                    " tensors, got ", state.size());
  for (const auto& [name, average] : average_) {
    const auto found = state.find(name);
    check<ValueError>(found != state.end(), function, ": '", name, "' is missing");
    vox::detail::check_defined(function, name.c_str(), found->second);
    check<ShapeError>(found->second.shape() == average.shape(), function, ": '", name, "' has shape ",
                      average.shape(), ", got ", found->second.shape());
  }
  const auto guard = no_grad();
  for (auto& [name, average] : average_) average.copy_(state.at(name));
}

}  // namespace vox::optim

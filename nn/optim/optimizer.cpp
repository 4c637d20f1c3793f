#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/optim/optimizer.h>
#include <voxgrad/ops/elementwise.h>

#include <cmath>

namespace vox::optim {

Optimizer::Optimizer(std::vector<Tensor> parameters, double lr) : parameters_(std::move(parameters)) {
  check<ValueError>(!parameters_.empty(), "Optimizer: got no parameters");
  for (const Tensor& p : parameters_) {
    detail::check_defined("Optimizer", "parameters", p);
    check<GradError>(p.is_leaf() && p.requires_grad(),
                     "Optimizer: a parameter must be a leaf that requires grad");
  }
  set_lr(lr);
}

void Optimizer::set_lr(double lr) {
  check<ValueError>(lr >= 0 && std::isfinite(lr), "Optimizer: lr must be finite and >= 0, got ", lr);
  lr_ = lr;
}

void Optimizer::step() {
  const auto guard = no_grad();
  ++steps_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (const Tensor g = parameters_[i].grad(); g.defined()) update(i, parameters_[i], g);
  }
}

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.zero_grad();
}

Tensor& Optimizer::buffer(const std::string& name, size_t i) {
  auto& list = buffers_[name];
  list.resize(parameters_.size());
  if (!list[i].defined()) list[i] = zeros_like(parameters_[i]);
  return list[i];
}

Optimizer::State Optimizer::state_dict() const {
  State state;
  state.emplace("step", full({}, steps_, {.dtype = i64}));
  for (const auto& [name, list] : buffers_) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].defined()) state.emplace(std::to_string(i) + "." + name, list[i].clone());
    }
  }
  return state;
}

void Optimizer::load_state_dict(const State& state) {
  const auto step = state.find("step");
  check<ValueError>(step != state.end(), "Optimizer::load_state_dict: 'step' is missing");
  const int64_t steps = step->second.item<int64_t>();
  check<ValueError>(steps >= 0, "Optimizer::load_state_dict: 'step' must be >= 0, got ", steps);

  std::map<std::string, std::vector<Tensor>> buffers;
  size_t used = 1;  // "step"
  for (const std::string& name : buffer_names()) {
    auto& list = buffers[name];
    list.resize(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string key = std::to_string(i) + "." + name;
      const auto found = state.find(key);
      if (found == state.end()) continue;
      ++used;
      const Tensor& p = parameters_[i];
      detail::check_defined("Optimizer::load_state_dict", key.c_str(), found->second);
      check<ShapeError>(found->second.shape() == p.shape(), "Optimizer::load_state_dict: '", key,
                        "' belongs to a parameter of shape ", p.shape(), ", got ", found->second.shape());
      check<DTypeError>(found->second.dtype() == p.dtype(), "Optimizer::load_state_dict: '", key,
                        "' belongs to a parameter of dtype ", p.dtype(), ", got ", found->second.dtype());
      list[i] = found->second.to(p.device()).clone();
    }
  }
  check<ValueError>(used == state.size(), "Optimizer::load_state_dict: ", state.size() - used,
                    " entries belong to another kind of optimiser or to other parameters");
  buffers_ = std::move(buffers);
  steps_ = steps;
}

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm) {
  check<ValueError>(max_norm > 0, "clip_grad_norm_: max_norm must be > 0, got ", max_norm);
  const auto guard = no_grad();
  double square = 0;
  for (const Tensor& p : parameters) {
    if (const Tensor g = p.grad(); g.defined()) square += (g * g).sum().to(f64).item<double>();
  }
  const double norm = std::sqrt(square);
  if (norm > max_norm) {
    for (const Tensor& p : parameters) {
      if (Tensor g = p.grad(); g.defined()) g.mul_(max_norm / (norm + 1e-6));
    }
  }
  return norm;
}

}  // namespace vox::optim

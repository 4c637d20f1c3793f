#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/optim/optimizer.h>
#include <voxgrad/ops/elementwise.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace vox::optim {

namespace {

const Tensor& entry(const Optimizer::State& state, const char* name) {
  const auto found = state.find(name);
  check<ValueError>(found != state.end(), "Optimizer::load_state_dict: '", name, "' is missing");
  return found->second;
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, double lr)
    : parameters_(std::move(parameters)), updates_(parameters_.size()) {
  check<ValueError>(!parameters_.empty(), "Optimizer: got no parameters");
  std::set<const TensorImpl*> seen;
  for (const Tensor& p : parameters_) {
    detail::check_defined("Optimizer", "parameters", p);
    check<ValueError>(seen.insert(p.impl().get()).second, "Optimizer: a parameter of shape ", p.shape(),
                      " is given twice; each step would update it twice");
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
  std::set<const Storage*> written;
  for (const Tensor& p : parameters_) written.insert(p.impl()->storage.get());
  std::map<std::string, std::vector<detail::OptimizerItem>> items;  // by device
  std::vector<std::pair<Tensor, Tensor>> copies;                    // parameters that are not dense
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor &p = parameters_[i], g = p.grad();
    if (!g.defined()) continue;
    auto& item = items[str(p.device())].emplace_back(this->item(i));
    item.parameter = p.detach().contiguous();
    item.gradient = written.contains(g.impl()->storage.get()) ? g.detach().clone() : g.detach().contiguous();
    if (!p.is_contiguous()) copies.emplace_back(p, item.parameter);
  }
  // All memory is there: from here on parameters change.
  for (const Tensor& p : parameters_) {
    if (p.grad().defined()) detail::begin_in_place("Optimizer::step", p);
  }
  for (const auto& [name, list] : items) update(list[0].parameter.device(), list);
  for (auto& [p, dense] : copies) p.copy_(dense);
  ++steps_;
}

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.zero_grad();
}

/// The state of parameter i, made if this is its first update, and moved or cast if the parameter was.
detail::OptimizerItem Optimizer::item(size_t i) {
  const Tensor& p = parameters_[i];
  const TensorOptions wide{opmath(p.dtype()), p.device()};
  detail::OptimizerItem item;
  item.updates = updates_[i].defined() ? updates_[i].to(p.device()) : zeros({}, {i64, p.device()});
  const std::vector<std::string> names = needs_buffers() ? buffer_names() : std::vector<std::string>();
  for (size_t k = 0; k < names.size(); ++k) {
    auto& list = buffers_[names[k]];
    list.resize(parameters_.size());
    item.buffers[k] = list[i].defined() ? list[i].to(wide.device).to(wide.dtype) : zeros(p.shape(), wide);
  }
  updates_[i] = item.updates;
  for (size_t k = 0; k < names.size(); ++k) buffers_[names[k]][i] = item.buffers[k];
  return item;
}

Optimizer::State Optimizer::state_dict() const {
  std::vector<int64_t> updates;
  for (const Tensor& t : updates_) updates.push_back(t.defined() ? t.item<int64_t>() : 0);
  State state;
  state.emplace(
      "step", full({}, std::max(steps_, *std::max_element(updates.begin(), updates.end())), {.dtype = i64}));
  state.emplace("updates", from_vector(updates, {static_cast<int64_t>(updates.size())}));
  for (const auto& [name, list] : buffers_) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].defined()) state.emplace(std::to_string(i) + "." + name, list[i].clone());
    }
  }
  return state;
}

void Optimizer::load_state_dict(const State& state) {
  const int64_t steps = entry(state, "step").item<int64_t>();
  constexpr int64_t most_steps = int64_t{1} << 62;  // more than any run has, and far from overflow
  check<ValueError>(steps >= 0 && steps <= most_steps, "Optimizer::load_state_dict: 'step' must be in [0, ",
                    most_steps, "], got ", steps);
  const std::vector<int64_t> updates = entry(state, "updates").to_vector<int64_t>();
  check<ValueError>(updates.size() == parameters_.size(), "Optimizer::load_state_dict: 'updates' is of ",
                    updates.size(), " parameters, this optimiser has ", parameters_.size());
  for (int64_t count : updates)
    check<ValueError>(count >= 0 && count <= steps, "Optimizer::load_state_dict: 'updates' must be in [0, ",
                      steps, "], got ", count);

  std::map<std::string, std::vector<Tensor>> buffers;
  std::vector<size_t> found_of(parameters_.size(), 0);
  size_t used = 2;  // "step" and "updates"
  for (const std::string& name : buffer_names()) {
    auto& list = buffers[name];
    list.resize(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string key = std::to_string(i) + "." + name;
      const auto found = state.find(key);
      if (found == state.end()) continue;
      ++used, ++found_of[i];
      const Tensor& p = parameters_[i];
      detail::check_defined("Optimizer::load_state_dict", key.c_str(), found->second);
      check<ShapeError>(found->second.shape() == p.shape(), "Optimizer::load_state_dict: '", key,
                        "' belongs to a parameter of shape ", p.shape(), ", got ", found->second.shape());
      check<DTypeError>(found->second.dtype() == opmath(p.dtype()), "Optimizer::load_state_dict: '", key,
                        "' belongs to a parameter of dtype ", p.dtype(), " and must be ", opmath(p.dtype()),
                        ", got ", found->second.dtype());
      list[i] = found->second.detach().to(p.device()).clone();
    }
  }
  for (size_t found : found_of)
    check<ValueError>(found == 0 || found == buffer_names().size(),
                      "Optimizer::load_state_dict: a parameter must have all of its buffers or none, got ",
                      found, " of ", buffer_names().size());
  check<ValueError>(used == state.size(), "Optimizer::load_state_dict: ", state.size() - used,
                    " entries belong to another kind of optimiser or to other parameters");
  std::vector<Tensor> counts;
  for (size_t i = 0; i < updates.size(); ++i)
    counts.push_back(full({}, updates[i], {i64, parameters_[i].device()}));
  buffers_ = std::move(buffers);
  updates_ = std::move(counts);
  steps_ = steps;
}

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm) {
  check<ValueError>(max_norm > 0, "clip_grad_norm_: max_norm must be > 0, got ", max_norm);
  const auto guard = no_grad();
  Tensor square;  // stays on the device until the end: one wait instead of one per parameter
  for (const Tensor& p : parameters) {
    detail::check_defined("clip_grad_norm_", "parameters", p);
    const Tensor g = p.grad();
    if (!g.defined()) continue;
    const Tensor wide = g.to(opmath(g.dtype())), term = (wide * wide).sum().to(f64);
    square = square.defined() ? square + term.to(square.device()) : term;
  }
  const double norm = square.defined() ? std::sqrt(square.item<double>()) : 0;
  if (norm > max_norm) {
    for (const Tensor& p : parameters) {
      if (Tensor g = p.grad(); g.defined()) g.mul_(max_norm / (norm + 1e-6));
    }
  }
  return norm;
}

}  // namespace vox::optim

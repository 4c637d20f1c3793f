#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/optim/optimizer.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace vox::optim {

namespace {

const Tensor& entry(const Optimizer::State& state, const char* name) {
  const auto found = state.find(name);
  check<ValueError>(found != state.end(), "Optimizer::load_state_dict: '", name, "' is missing");
  return found->second;
}

void check_lr(double lr) {
  check<ValueError>(lr >= 0 && std::isfinite(lr), "Optimizer: lr must be finite and >= 0, got ", lr);
}

}  // namespace

void Optimizer::add_parameters(std::vector<Tensor> parameters, double lr) {
  check<ValueError>(!parameters.empty(), "Optimizer: got no parameters");
  check_lr(lr);
  std::set<const TensorImpl*> seen;
  for (const Tensor& p : parameters_) seen.insert(p.impl().get());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    detail::check_defined("Optimizer", "parameters", p);
    const std::string name = p.name().empty() ? "" : " '" + p.name() + "'";
    const std::string which =
        str("Optimizer: parameter ", parameters_.size() + i, name, " of shape ", p.shape());
    check<ValueError>(seen.insert(p.impl().get()).second, which,
                      " is given twice; each step would update it twice");
    check<GradError>(p.is_leaf(), which, " must be a leaf, but is the result of an op");
    detail::check_writable("Optimizer", str("parameter ", parameters_.size() + i, name).c_str(), p);
  }
  groups_.resize(groups_.size() + parameters.size(), lr_.size());
  std::move(parameters.begin(), parameters.end(), std::back_inserter(parameters_));
  updates_.resize(parameters_.size());
  lr_.push_back(lr);
}

double Optimizer::lr(size_t group) const {
  check<ValueError>(group < lr_.size(), "Optimizer::lr: group ", group, " of ", lr_.size());
  return lr_[group];
}

void Optimizer::set_lr(Real lr) {
  check_lr(lr);
  std::fill(lr_.begin(), lr_.end(), lr);
}

void Optimizer::set_lr(Real lr, size_t group) {
  check<ValueError>(group < lr_.size(), "Optimizer::set_lr: group ", group, " of ", lr_.size());
  check_lr(lr);
  lr_[group] = lr;
}

void Optimizer::step() {
  const auto guard = no_grad();
  std::set<const Storage*> written;
  for (const Tensor& p : parameters_) written.insert(p.impl()->storage.get());
  std::map<std::pair<size_t, std::string>, std::vector<detail::OptimizerItem>> items;  // by group and device
  std::vector<std::pair<Tensor, Tensor>> copies;  // parameters that are not dense
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor &p = parameters_[i], g = p.grad();
    if (!g.defined() || !p.requires_grad()) continue;
    auto& item = items[{groups_[i], str(p.device())}].emplace_back(this->item(i));
    item.parameter = p.detach().contiguous();
    item.gradient = written.contains(g.impl()->storage.get()) ? g.detach().clone() : g.detach().contiguous();
    if (!p.is_contiguous()) copies.emplace_back(p, item.parameter);
  }
  check<GradError>(!items.empty(), "Optimizer::step: none of the ", parameters_.size(),
                   " parameters has a gradient; call backward() on a loss that depends on them first");
  // All memory is allocated. From here on parameters change.
  for (const Tensor& p : parameters_) {
    if (p.grad().defined() && p.requires_grad()) detail::begin_in_place("Optimizer::step", p);
  }
  for (const auto& [key, list] : items) update(key.first, list[0].parameter.device(), list);
  for (auto& [p, dense] : copies) detail::copy_kernel.on(p.device())(dense, p);
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
  const std::vector<std::string> names =
      needs_buffers(groups_[i]) ? buffer_names() : std::vector<std::string>();
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
  const Tensor &step_entry = entry(state, "step"), &updates_entry = entry(state, "updates");
  check<DTypeError>(step_entry.dtype() == i64, "Optimizer::load_state_dict: 'step' must have dtype i64, got ",
                    step_entry.dtype());
  const int64_t steps =
      in_the_name_of("Optimizer::load_state_dict: 'step'", [&] { return step_entry.item<int64_t>(); });
  constexpr int64_t most_steps = int64_t{1} << 62;  // more than any run has, and far from overflow
  check<ValueError>(steps >= 0 && steps <= most_steps, "Optimizer::load_state_dict: 'step' must be in [0, ",
                    most_steps, "], got ", steps);
  const std::vector<int64_t> updates = in_the_name_of("Optimizer::load_state_dict: 'updates'",
                                                      [&] { return updates_entry.to_vector<int64_t>(); });
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

double clip_grad_norm_(const std::vector<Tensor>& parameters, Real max_norm, const ClipOptions& options) {
  check<ValueError>(max_norm > 0, "clip_grad_norm_: max_norm must be > 0, got ", max_norm);
  const auto guard = no_grad();
  std::vector<Tensor> gradients, norms;  // norms stay on the device: one wait instead of one per parameter
  for (const Tensor& p : parameters) {
    detail::check_defined("clip_grad_norm_", "parameters", p);
    if (const Tensor g = p.grad(); g.defined()) gradients.push_back(g);
  }
  if (gradients.empty()) return 0;
  const bool wide =
      std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) { return g.dtype() == f64; });
  for (const Tensor& g : gradients)
    norms.push_back(vox::norm(g.to(wide ? f64 : f32)).to(gradients[0].device()));
  const double total = vox::norm(stack(norms).to(f64)).item<double>();
  check<ValueError>(!options.error_if_nonfinite || std::isfinite(total), "clip_grad_norm_: the norm of the ",
                    gradients.size(), " gradients is ", total);
  const double scale = max_norm / (total + 1e-6);
  if (scale >= 1) return total;
  for (Tensor& g : gradients) g.mul_(scale);
  return total;
}

}  // namespace vox::optim

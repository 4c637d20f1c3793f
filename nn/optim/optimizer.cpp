#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/new_tensor.h>
#include <voxgrad/nn/optim/optimizer.h>
#include <voxgrad/ops/kernels.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace vox::optim {

namespace {

void check_lr(double lr) {
  check<ValueError>(lr >= 0 && std::isfinite(lr), "Optimizer: lr must be finite and >= 0, got ", lr);
}

}  // namespace

void Optimizer::add_parameters(std::vector<Tensor> parameters, double lr) {
  check<ValueError>(!parameters.empty(),
                    "Optimizer: got no parameters; a network has those of the members that its "
                    "VOXGRAD_MODULE lists and of register_parameter()");
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
    check<DTypeError>(is_floating(p.dtype()), which, " must have a floating dtype, got ", p.dtype());
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
  // By device and group. The CPU is first: its step may still fail, if it is the first to need threads.
  std::map<std::pair<std::string, size_t>, std::vector<detail::OptimizerItem>> items;
  std::vector<std::pair<Tensor, Tensor>> copies;  // parameters that are not dense
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor &p = parameters_[i], g = p.grad();
    if (!g.defined() || !p.requires_grad()) continue;
    auto& item = items[{str(p.device()), groups_[i]}].emplace_back(this->item(i));
    item.parameter = p.detach().contiguous();
    item.gradient = written.contains(g.impl()->storage.get()) ? g.detach().clone() : g.detach().contiguous();
    if (!p.is_contiguous()) copies.emplace_back(p, item.parameter);
  }
  check<GradError>(!items.empty(), "Optimizer::step: none of the ", parameters_.size(),
                   " parameters has a gradient; call backward() on a loss that depends on them first");
  for (auto& [key, list] : items) {
    const Device device = list[0].parameter.device();
    if (!device.is_cuda()) continue;
    if (!numbers_.defined() || numbers_.device() != device)
      numbers_ = detail::empty_for("Optimizer", {2 * detail::most_in_launch}, {f64, device});
    list[0].numbers = numbers_;
  }
  // All memory is allocated. From here on parameters change.
  for (const Tensor& p : parameters_)
    if (p.grad().defined() && p.requires_grad()) detail::begin_in_place("Optimizer::step", p);
  for (const auto& [key, list] : items) update(key.second, list[0].parameter.device(), list);
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

}  // namespace vox::optim

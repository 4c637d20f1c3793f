#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/nn/module.h>

#include <algorithm>
#include <set>

namespace vox::nn {

namespace {

using Named = Module::Named;

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::vector<Named> without_repeats(const std::vector<Named>& all) {
  std::vector<Named> once;
  std::set<const TensorImpl*> seen;
  for (const Named& named : all) {
    if (seen.insert(named.second.impl().get()).second) once.push_back(named);
  }
  return once;
}

/// Refuses expanded tensors at registration. copy_() would refuse them only when load_state_dict() has begun
/// to write.
void check_writable(const std::string& name, const Tensor& value) {
  for (int64_t d = 0; d < value.rank(); ++d)
    check<ValueError>(value.shape()[d] <= 1 || value.strides()[d] != 0, "Module: '", name,
                      "' is an expanded tensor of shape ", value.shape(), " and strides ", value.strides(),
                      ", which cannot be written to; register a clone()");
}

}  // namespace

void Module::check_name(const std::string& name) const {
  check<ValueError>(!name.empty() && name.find('.') == std::string::npos,
                    "Module: a name is not empty and has no dot, got '", name, "'");
  const auto is_taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& entry) { return entry.first == name; });
  };
  check<ValueError>(!is_taken(parameters_) && !is_taken(buffers_) && !is_taken(children_),
                    "Module: the name '", name, "' is registered twice");
}

Tensor Module::register_parameter(std::string name, Tensor value) {
  if (!value.defined()) return value;
  check_name(name);
  check_writable(name, value);
  value.set_requires_grad(true);
  parameters_.emplace_back(std::move(name), value);
  return value;
}

Tensor Module::register_buffer(std::string name, Tensor value) {
  if (!value.defined()) return value;
  check_name(name);
  check_writable(name, value);
  buffers_.emplace_back(std::move(name), value);
  return value;
}

bool Module::contains(const Module& other) const {
  return this == &other || std::any_of(children_.begin(), children_.end(),
                                       [&](const auto& entry) { return entry.second->contains(other); });
}

void Module::add_child(std::string name, std::shared_ptr<Module> module) {
  check<ValueError>(module != nullptr, "Module: the child '", name, "' is null");
  check<ValueError>(!module->contains(*this), "Module: the child '", name,
                    "' is its own parent, or one of its parents; a module cannot contain itself");
  check_name(name);
  children_.emplace_back(std::move(name), std::move(module));
}

void Module::collect(Kind kind, const std::string& prefix, std::vector<Named>& all) const {
  for (const auto& [name, t] : kind == Kind::parameter ? parameters_ : buffers_)
    all.emplace_back(prefix + name, t);
  for (const auto& [name, child] : children_) child->collect(kind, prefix + name + ".", all);
}

std::vector<Named> Module::named_parameters() const {
  std::vector<Named> all;
  collect(Kind::parameter, "", all);
  return without_repeats(all);
}

std::vector<Named> Module::named_buffers() const {
  std::vector<Named> all;
  collect(Kind::buffer, "", all);
  return without_repeats(all);
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (auto& [name, t] : named_parameters()) all.push_back(t);
  return all;
}

void Module::name_parameters() {
  for (auto& [name, t] : named_parameters()) t.set_name(name);
}

Module& Module::train(bool on) {
  training_ = on;
  for (auto& [name, child] : children_) child->train(on);
  return *this;
}

template <class F>
void Module::replace_all(F f) {
  const auto guard = no_grad();
  for (auto* list : {&parameters_, &buffers_}) {
    for (auto& [name, t] : *list) {
      t.set_grad({});
      detail::set_data(t, f(t.detach()));
    }
  }
  for (auto& [name, child] : children_) child->replace_all(f);
}

Module& Module::to(Device device) {
  replace_all([device](const Tensor& t) { return t.to(device); });
  return *this;
}

Module& Module::to(DType dtype) {
  check<DTypeError>(is_floating(dtype), "Module::to: parameters have a floating dtype, got ", dtype);
  replace_all([dtype](const Tensor& t) { return is_floating(t.dtype()) ? t.to(dtype) : t; });
  return *this;
}

void Module::zero_grad() {
  for (Tensor& p : parameters()) p.zero_grad();
}

StateDict Module::state_dict() const {
  std::vector<Named> all;
  collect(Kind::parameter, "", all);
  collect(Kind::buffer, "", all);
  return StateDict(all.begin(), all.end());
}

Module::LoadResult Module::load_state_dict(const StateDict& state, bool strict) {
  const StateDict own = state_dict();
  LoadResult result;
  for (const auto& [name, t] : own) {
    const auto found = state.find(name);
    if (found == state.end()) {
      result.missing.push_back(name);
      continue;
    }
    detail::check_defined("load_state_dict", name.c_str(), found->second);
    check<ShapeError>(found->second.shape() == t.shape(), "load_state_dict: '", name, "' has shape ",
                      t.shape(), ", got ", found->second.shape());
    check<DTypeError>(found->second.dtype() == t.dtype(), "load_state_dict: '", name, "' has dtype ",
                      t.dtype(), ", got ", found->second.dtype());
  }
  for (const auto& [name, t] : state) {
    if (!own.contains(name)) result.unexpected.push_back(name);
  }
  check<ValueError>(!strict || (result.missing.empty() && result.unexpected.empty()),
                    "load_state_dict: missing: ", join(result.missing),
                    "; unexpected: ", join(result.unexpected), " (strict = false allows both)");
  const auto guard = no_grad();
  for (const auto& [name, t] : own) {
    if (const auto found = state.find(name); found != state.end()) Tensor(t).copy_(found->second);
  }
  return result;
}

}  // namespace vox::nn

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/type_name.h>
#include <voxgrad/nn/module.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <typeinfo>

namespace vox::nn {

namespace {

using detail::TreeNode;

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& all) {
  std::vector<NamedTensor> once;
  std::set<const TensorImpl*> seen;
  for (const NamedTensor& named : all) {
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

// ---- Members -------------------------------------------------------------------------------------------

namespace {

/// The addresses of all modules. It is never destroyed, because modules may be static.
struct ModuleAddresses {
  std::mutex mutex;
  std::set<const void*> all;
};
ModuleAddresses& module_addresses() {
  static auto* const only = new ModuleAddresses;
  return *only;
}

}  // namespace

namespace detail {

ModuleAddress::ModuleAddress() {
  const std::lock_guard lock(module_addresses().mutex);
  module_addresses().all.insert(this);
}

ModuleAddress::~ModuleAddress() {
  const std::lock_guard lock(module_addresses().mutex);
  module_addresses().all.erase(this);
}

}  // namespace detail

/// Throws if a module lies inside this one and is not among those `below` it.
void Module::check_members(const Children& children, std::span<const TreeNode> below) const {
  const auto* const begin = static_cast<const char*>(children.begin_);
  std::set<const void*> listed{&address_};
  for (const TreeNode& node : below) listed.insert(&node.module->address_);
  const bool all_listed = [&] {
    const std::lock_guard lock(module_addresses().mutex);
    const auto& all = module_addresses().all;
    return std::all_of(all.lower_bound(begin), all.lower_bound(begin + children.size_),
                       [&](const void* address) { return listed.contains(address); });
  }();
  check<ValueError>(
      all_listed, describe(),
      ": VOXGRAD_MODULE does not list all members that are modules; one of them would not be "
      "trained, moved or saved (to exclude it on purpose, hold it by a std::unique_ptr and call its own "
      "eval() or train() once)");
}

std::string Children::take_name(std::string_view& names) {
  const size_t end = std::min(names.find(','), names.size());
  std::string name(names.substr(0, end));
  names.remove_prefix(std::min(end + 1, names.size()));
  std::erase(name, ' ');
  if (name.ends_with('_')) name.pop_back();
  return name;
}

// ---- Calls ---------------------------------------------------------------------------------------------

namespace {
thread_local detail::Call* innermost = nullptr;

std::string class_of(const Module& module) {
  const std::string text = module.describe();
  return text.substr(0, text.find('('));
}

/// `error`, which is being handled, with another message; the same if its class has no Error::with.
std::exception_ptr with_message(const Error& error, const std::string& message) {
  const std::exception_ptr other = error.with(message);
  try {
    std::rethrow_exception(other);
  } catch (const Error& thrown) {
    if (typeid(thrown) == typeid(error)) return other;
  }
  return std::current_exception();
}
}  // namespace

namespace detail {

Call::Call(Module& module)
    : module_(module),
      outer_(innermost),
      is_known_(module.address_.is_known || (outer_ && outer_->is_known_)) {
  const bool has_tensors = !module.parameters_.empty() || !module.buffers_.empty();
  if (has_tensors && is_known_ && !module.address_.is_known) {
    for (const Call* call = outer_; call; call = call->outer_) {
      if (call->module_.address_.is_known) call->module_.known_tree();  // it may have been added since
    }
    check<ValueError>(
        module.address_.is_known, module.describe(),
        " is called, but no VOXGRAD_MODULE or list_children() names it: it is not trained, moved "
        "or saved (to leave it out on purpose, call its own eval() or train() once)");
  }
  innermost = this;
}

Call::~Call() { innermost = outer_; }

std::string Call::place() const try {
  std::vector<const Call*> calls;
  for (const Call* call = this; call; call = call->outer_) calls.push_back(call);
  std::string path;
  for (size_t i = calls.size() - 1; i > 0; --i) {
    for (const TreeNode& node : calls[i]->module_.tree()) {
      if (node.module != &calls[i - 1]->module_) continue;
      path += (path.empty() || node.path.empty() ? "" : ".") + node.path;
      break;
    }
  }
  if (!path.empty()) return str("in ", path, " (", class_of(module_), "): ");
  return module_.tree().size() > 1 ? str("in ", class_of(module_), ": ") : "";  // a layer names itself
} catch (const Error&) {
  return "";  // a list is wrong, which is not the error to report here
}

void Call::rethrow(const Error& error) {
  const bool is_named = !named_.empty() && std::string_view(error.what()).find(named_) != std::string::npos;
  if (!is_named) named_ = place();
  if (outer_) outer_->named_ = named_;
  if (is_named || named_.empty()) throw;
  std::rethrow_exception(with_message(error, named_ + error.what()));
}

void Results::cannot_see(const std::type_info& type) const {
  throw ValueError(str(module.describe(), ": a forward hook cannot see the tensors of the ",
                       vox::detail::type_name(type),
                       " that forward() returned; give it a member `auto tensors() "
                       "{ return std::tie(a, b); }` that names them"));
}

}  // namespace detail

// ---- The tree ------------------------------------------------------------------------------------------

void Module::check_name_is_new(const std::string& name) const {
  for (const auto* list : {&parameters_, &buffers_}) {
    for (const auto& entry : *list)
      check<ValueError>(entry.first != name, describe(), ": the name '", name, "' is registered twice");
  }
}

void Module::collect(const std::string& path, const std::string& name, std::vector<const Module*>& parents,
                     std::vector<TreeNode>& nodes) const {
  check<ValueError>(std::find(parents.begin(), parents.end(), this) == parents.end(), "Module: '", path,
                    "' is one of its own parents; a module cannot contain itself");
  auto* const self = const_cast<Module*>(this);
  nodes.push_back({path, name, parents.size(), self});
  Children children;
  self->list_children(children);
  parents.push_back(this);
  const size_t first = nodes.size();
  std::set<std::string> seen;
  for (const auto& [child, module] : children.list_) {
    check_name_is_new(child);
    check<ValueError>(seen.insert(child).second, describe(), ": the name '", child, "' is listed twice");
    module->collect(path.empty() ? child : path + "." + child, child, parents, nodes);
  }
  parents.pop_back();
  check_members(children, std::span(nodes).subspan(first));
}

/// This module and all below, parents first, under all their names.
std::vector<TreeNode> Module::tree() const {
  std::vector<TreeNode> nodes;
  std::vector<const Module*> parents;
  collect("", "", parents, nodes);
  return nodes;
}

/// The same for those who will read, set or keep what they find.
std::vector<TreeNode> Module::known_tree() const {
  std::vector<TreeNode> nodes = tree();
  for (const TreeNode& node : nodes) node.module->address_.is_known = true;
  return nodes;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all;
  std::set<const Module*> seen;
  for (const TreeNode& node : tree()) {
    if (seen.insert(node.module).second) all.emplace_back(node.path, node.module);
  }
  return all;
}

Module& Module::apply(const std::function<void(Module&)>& f) {
  vox::detail::check_callable("Module::apply", "f", f);
  std::vector<Module*> open;  // the last node and its parents
  std::set<const Module*> seen;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      if (seen.insert(open.back()).second) f(*open.back());
    }
  };
  for (const TreeNode& node : tree()) {
    close(node.depth);
    open.push_back(node.module);
  }
  close(0);
  return *this;
}

// ---- Parameters and buffers ----------------------------------------------------------------------------

Tensor Module::register_in(std::vector<NamedTensor>& list, std::string name, Tensor value) {
  check<ValueError>(!name.empty() && name.find('.') == std::string::npos,
                    "Module: a name is not empty and has no dot, got '", name, "'");
  check_name_is_new(name);
  check_writable(name, value);
  if (&list == &parameters_) value.set_requires_grad(true);
  list.emplace_back(std::move(name), value);
  return value;
}

Tensor Module::register_parameter(std::string name, Tensor value) {
  return value.defined() ? register_in(parameters_, std::move(name), std::move(value)) : value;
}

Tensor Module::register_buffer(std::string name, Tensor value) {
  return value.defined() ? register_in(buffers_, std::move(name), std::move(value)) : value;
}

std::vector<NamedTensor> Module::tensors(std::vector<NamedTensor> Module::*kind) const {
  std::vector<NamedTensor> all;
  for (const TreeNode& node : known_tree()) {
    for (const auto& [name, t] : node.module->*kind) {
      all.emplace_back(node.path.empty() ? name : node.path + "." + name, t);
      check<ValueError>(
          t.impl().use_count() > 2, node.module->describe(), ": '", all.back().first,
          "' is registered, but nothing else holds it: the member was assigned another tensor, "
          "which would not be trained, moved or saved. Write into the member, member.copy_(...) under "
          "no_grad(), or register the other tensor");
    }
  }
  return all;
}

std::vector<NamedTensor> Module::named_parameters() const {
  return without_repeats(tensors(&Module::parameters_));
}
std::vector<NamedTensor> Module::named_buffers() const { return without_repeats(tensors(&Module::buffers_)); }

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (auto& [name, t] : named_parameters()) all.push_back(t);
  return all;
}

void Module::name_parameters() {
  for (auto& [name, t] : named_parameters()) t.set_name(name);
}

Module& Module::train(bool on) {
  for (const TreeNode& node : known_tree()) node.module->training_ = on;
  return *this;
}

template <class F>
void Module::replace_all(F f) {
  const auto guard = no_grad();
  for (auto kind : {&Module::parameters_, &Module::buffers_}) {
    for (auto& [name, t] : without_repeats(tensors(kind))) {
      t.set_grad({});
      vox::detail::set_data(t, f(t.detach()));
    }
  }
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
  StateDict state;
  for (auto kind : {&Module::parameters_, &Module::buffers_}) {
    for (auto& named : tensors(kind)) state.insert(std::move(named));
  }
  return state;
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
    vox::detail::check_defined("load_state_dict", name.c_str(), found->second);
    check<ShapeError>(found->second.shape() == t.shape(), "load_state_dict: '", name, "' has shape ",
                      t.shape(), ", got ", found->second.shape());
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

// ---- Hooks ---------------------------------------------------------------------------------------------

int64_t Module::register_forward_hook(ForwardHook hook) {
  vox::detail::check_callable("Module::register_forward_hook", "hook", hook);
  hooks_.emplace(next_hook_, std::move(hook));
  return next_hook_++;
}

void Module::remove_forward_hook(Int id) {
  check<ValueError>(hooks_.erase(id) == 1, "Module::remove_forward_hook: there is no hook ", id);
}

void Module::run_forward_hooks(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  const auto hooks = hooks_;  // a hook may remove itself
  for (const auto& [id, hook] : hooks) hook(*this, inputs, outputs);
}

// ---- Description ---------------------------------------------------------------------------------------

std::string Module::describe() const { return vox::detail::type_name(typeid(*this)); }

std::ostream& operator<<(std::ostream& out, const Module& module) {
  for (const TreeNode& node : module.tree()) {
    int64_t count = 0;
    for (const Tensor& p : node.module->parameters()) count += p.numel();
    if (node.depth > 0) out << "\n" << std::string(2 * node.depth, ' ') << node.name << ": ";
    out << node.module->describe();
    const char* separator = ": ";
    for (const auto& [name, t] : node.module->parameters_)
      out << std::exchange(separator, ", ") << name << " " << t.shape();
    if (count > 0) out << "; " << count << " parameters";
  }
  return out;
}

}  // namespace vox::nn

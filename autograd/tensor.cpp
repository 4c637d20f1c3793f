// The members of Tensor that concern gradients, and the check before an in-place write.
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/meta.h>

#include <algorithm>
#include <cctype>

namespace vox {

bool Tensor::requires_grad() const {
  const auto& meta = checked("requires_grad").autograd;
  return meta && (meta->requires_grad || meta->node);
}

bool Tensor::is_leaf() const {
  const auto& meta = checked("is_leaf").autograd;
  return !meta || !meta->node;
}

Tensor& Tensor::set_requires_grad(bool requires_grad) {
  checked("set_requires_grad");
  check<GradError>(is_leaf(),
                   "set_requires_grad: only a leaf may change it; this tensor was made by a recorded op ",
                   "(use detach() to get a leaf)");
  check<DTypeError>(!requires_grad || is_floating(dtype()), "set_requires_grad: needs a floating dtype, got ",
                    dtype(), "; allowed are f32, f64, bf16 and f16");
  if (requires_grad || impl_->autograd) autograd::meta_of(*this).requires_grad = requires_grad;
  return *this;
}

Tensor Tensor::grad() const {
  const auto& meta = checked("grad").autograd;
  return meta && meta->grad.defined() ? meta->grad : detail::missing_gradient(*this);
}

void Tensor::set_grad(const Tensor& grad) {
  checked("set_grad");
  if (!grad.defined() && !impl_->autograd) return;
  if (grad.defined()) {
    check<GradError>(autograd::spec_of(grad) == autograd::spec_of(*this),
                     "set_grad: a gradient must have its tensor's shape, dtype and device, ", shape(), " ",
                     dtype(), " on ", device(), "; got ", grad.shape(), " ", grad.dtype(), " on ",
                     grad.device());
    check<GradError>(grad.impl() != impl_, "set_grad: a tensor cannot be its own gradient (use clone())");
  }
  autograd::meta_of(*this).grad = grad;
}

Tensor Tensor::detach() const {
  const TensorImpl& t = checked("detach");
  return detail::alias(*this, t.offset, t.shape, t.strides);
}

namespace {
/// The tensor's HookList, made on first use. A leaf that does not require grad yet keeps the list for later.
autograd::HookList& attached_to(const Tensor& t) {
  AutogradMeta& meta = autograd::meta_of(t);
  auto& list = meta.node ? meta.node->hooks(meta.output) : meta.leaf_hooks;
  if (!list) list = std::make_shared<autograd::HookList>();
  if (auto accumulator = meta.accumulator.lock()) accumulator->hooks(0) = list;
  return *list;
}

autograd::HookList& hook_list(const char* function, const Tensor& t) {
  detail::check_defined(function, "this", t);
  check<GradError>(t.requires_grad(), function, ": the tensor", autograd::Quoted{t},
                   " does not require grad");
  return attached_to(t);
}
}  // namespace

Tensor& Tensor::set_name(const std::string& name) {
  checked("set_name");
  const bool is_text =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return std::iscntrl(c); });
  check<ValueError>(is_text, "set_name: a name must not contain control characters");
  attached_to(*this).name = name;
  return *this;
}

std::string Tensor::name() const {
  const auto& meta = checked("name").autograd;
  if (!meta) return "";
  if (meta->node) return meta->node->output_name(meta->output);
  return meta->leaf_hooks ? meta->leaf_hooks->name : "";
}

int64_t Tensor::add_hook(Hook hook) {
  auto& list = hook_list("register_hook", *this);
  detail::check_callable("register_hook", "hook", hook);
  const int64_t id = list.next_id++;
  list.hooks.emplace(id, std::move(hook));
  return id;
}

void Tensor::remove_hook(Int id) {
  check<ValueError>(hook_list("remove_hook", *this).hooks.erase(id) == 1,
                    "remove_hook: no hook has the number ", id);
}

Tensor& Tensor::retain_grad() {
  auto& list = hook_list("retain_grad", *this);
  if (is_leaf()) return *this;
  for (const auto& retained : list.retained) {
    if (retained.lock() == impl_) return *this;
  }
  list.retained.push_back(impl_);
  return *this;
}

namespace detail {

void set_data(const Tensor& t, const Tensor& data) {
  TensorImpl& to = *t.impl();
  const TensorImpl& from = *data.impl();
  to.storage = from.storage;
  to.offset = from.offset;
  to.shape = from.shape;
  to.strides = from.strides;
  to.numel = from.numel;
  to.dtype = from.dtype;
  if (to.autograd)
    to.autograd->accumulator.reset();  // the next graph gets one that expects the new shape and device
}

void begin_in_place(const char* function, const Tensor& target, const Tensor& source) {
  if (grad_enabled()) {
    const bool source_grad = source.defined() && source.requires_grad();
    check<GradError>(!target.requires_grad() && !source_grad, function,
                     ": in-place writes are not recorded, and the ", source_grad ? "source" : "target",
                     autograd::Quoted{source_grad ? source : target},
                     " requires grad; use the ordinary op (x = x + y), or write to a clone() or under ",
                     "`auto guard = vox::no_grad();`");
  }
  check<ValueError>(!target.impl()->storage->read_only(), function, ": the memory of the target",
                    autograd::Quoted{target}, " is read-only; write to a clone()");
  target.impl()->storage->bump_version();
}
}  // namespace detail

}  // namespace vox

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/grad_plan.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/node.h>
#include <voxgrad/autograd/running.h>
#include <voxgrad/autograd/saved_tensor.h>
#include <voxgrad/ops/arithmetic.h>  // add: gradients add up, and under create_graph that is recorded

#include <atomic>
#include <utility>

namespace vox::autograd {

namespace {
std::atomic<uint64_t> next_number{1};

void check_replacement(const Node& node, const Tensor& before, const Tensor& after) {
  check<GradError>(after.defined() && spec_of(after) == spec_of(before), "hook on ", node,
                   ": a replacement must have the gradient's shape, dtype and device, ", before.shape(), " ",
                   before.dtype(), " on ", before.device(), "; got ",
                   after.defined()
                       ? str(after.shape(), " ", after.dtype(), " on ", after.device())
                       : std::string("an undefined tensor (to keep the gradient, return nothing)"));
}

bool has_one_owner(const Tensor& t) {
  const Storage& storage = *t.impl()->storage;
  return t.impl().use_count() == 1 && t.impl()->storage.use_count() == 1 && !storage.read_only();
}
}  // namespace

TensorSpec spec_of(const Tensor& t) { return {t.shape(), t.dtype(), t.device()}; }

void accumulate(Tensor& into, Tensor gradient) {
  const bool may_reuse = !grad_enabled();
  if (!into.defined()) {
    const bool keep = may_reuse && has_one_owner(gradient) && gradient.is_contiguous();
    into = keep ? std::move(gradient) : gradient.clone();
  } else if (may_reuse && has_one_owner(into) && into.is_contiguous()) {
    into.add_(gradient);
  } else {
    into = add(into, gradient);
  }
}

Node::Node() : number_(next_number.fetch_add(1, std::memory_order_relaxed)) {}

bool Node::needs_grad(int64_t i) const {
  const Edge& edge = edges_[static_cast<size_t>(i)];
  return edge.node && (!running.plan || running.plan->wants(*edge.node));
}

const Shape& Node::input_shape(int64_t i) const {
  const Edge& edge = edges_[static_cast<size_t>(i)];
  return edge.node->outputs()[static_cast<size_t>(edge.output)].shape;
}

void Node::set_edges(std::vector<Edge> edges, std::span<const Tensor> inputs) {
  edges_ = std::move(edges);
  if (running.observer) running.observer->reads(*this, inputs);
}

void Node::add_output(const Tensor& t) {
  AutogradMeta& meta = meta_of(t);
  meta.node = shared_from_this();
  meta.output = static_cast<int64_t>(outputs_.size());
  outputs_.push_back(spec_of(t));
  if (running.observer) running.observer->recorded(*this, t);
}

void Node::release() {
  for (SavedTensor* saved : saved_) saved->release();
}

std::shared_ptr<HookList>& Node::hooks(int64_t output) {
  const auto i = static_cast<size_t>(output);
  if (hooks_.size() <= i) hooks_.resize(i + 1);
  return hooks_[i];
}

std::string Node::output_name(int64_t output) const {
  const auto i = static_cast<size_t>(output);
  return i < hooks_.size() && hooks_[i] ? hooks_[i]->name : "";
}

std::string quoted_names(const Node& node) {
  std::string text;
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (const std::string name = node.output_name(static_cast<int64_t>(i)); !name.empty())
      text += " \"" + name + '"';
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Node& node) {
  return out << node.name() << " #" << node.number() << quoted_names(node);
}

void Node::run_hooks(Gradients& gradients) {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    if (!hooks_[i] || !gradients[i]) continue;
    Tensor& gradient = *gradients[i];
    const auto hooks = hooks_[i]->hooks;  // a copy: a hook may add or remove hooks
    for (const auto& [id, hook] : hooks) {
      if (std::optional<Tensor> replacement = call_on_gradient("hook on ", *this, gradient, hook)) {
        check_replacement(*this, gradient, *replacement);
        gradient = *replacement;
      }
    }
  }
}

void Node::retain_gradients(const Gradients& gradients) const {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    if (!hooks_[i] || !gradients[i]) continue;
    for (const auto& retained : hooks_[i]->retained)
      if (auto impl = retained.lock()) accumulate(impl->autograd->grad, *gradients[i]);
  }
}

// Deleting a node may drop the last reference to other nodes, through its edges or its tensors. Their
// deleters run inside this one and only add to the list of the outermost call, so the stack stays flat. The
// list goes through the nodes themselves: memory may have run out, which is why they are deleted.
void reclaim(Node* node) noexcept {
  thread_local Node** outermost = nullptr;
  if (outermost) {
    node->next_doomed_ = std::exchange(*outermost, node);
    return;
  }
  Node* doomed = node;
  outermost = &doomed;
  while (doomed) delete std::exchange(doomed, doomed->next_doomed_);
  outermost = nullptr;
}

}  // namespace vox::autograd

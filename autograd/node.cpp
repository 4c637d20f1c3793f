#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/node.h>
#include <voxgrad/autograd/saved_tensor.h>

#include <atomic>

namespace vox::autograd {

namespace {
std::atomic<uint64_t> next_number{1};

void check_replacement(const Node& node, const Tensor& before, const Tensor& after) {
  check<GradError>(after.defined() && spec_of(after) == spec_of(before), "hook on ", node.name(),
                   ": a replacement must have the gradient's shape, dtype and device, ", before.shape(), " ",
                   before.dtype(), " on ", before.device(), "; got ",
                   after.defined()
                       ? str(after.shape(), " ", after.dtype(), " on ", after.device())
                       : std::string("an undefined tensor (to keep the gradient, return nothing)"));
}
}  // namespace

TensorSpec spec_of(const Tensor& t) { return {t.shape(), t.dtype(), t.device()}; }

Node::Node() : number_(next_number.fetch_add(1, std::memory_order_relaxed)) {}

bool Node::needs_grad(int64_t i) const {
  const Edge& edge = edges_[static_cast<size_t>(i)];
  return edge.node && is_wanted(*edge.node);
}

void Node::add_output(const Tensor& t) {
  AutogradMeta& meta = meta_of(t);
  meta.node = shared_from_this();
  meta.output = static_cast<int64_t>(outputs_.size());
  outputs_.push_back(spec_of(t));
}

void Node::release() {
  for (SavedTensor* saved : saved_) saved->release();
}

std::shared_ptr<HookList>& Node::hooks(int64_t output) {
  const auto i = static_cast<size_t>(output);
  if (hooks_.size() <= i) hooks_.resize(i + 1);
  return hooks_[i];
}

void Node::run_hooks(Gradients& gradients) {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    if (!hooks_[i] || !gradients[i]) continue;
    Tensor& gradient = *gradients[i];
    const auto hooks = hooks_[i]->hooks;  // a copy: a hook may add or remove hooks
    for (const auto& [id, hook] : hooks) {
      if (std::optional<Tensor> replacement = hook(gradient)) {
        check_replacement(*this, gradient, *replacement);
        gradient = *replacement;
      }
    }
  }
}

void Node::retain_gradients(const Gradients& gradients) const {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    if (!hooks_[i] || !gradients[i]) continue;
    for (const auto& retained : hooks_[i]->retained) {
      if (auto impl = retained.lock()) accumulate(impl->autograd->grad, *gradients[i]);
    }
  }
}

// A node's deleter may run inside another's: its edges, or tensors that its closures own, held the last
// reference. The outermost call frees the whole chain from a list, so the stack stays flat.
void reclaim(Node* node) noexcept {
  thread_local std::vector<Node*>* running = nullptr;
  if (running) {
    running->push_back(node);
    return;
  }
  std::vector<Node*> doomed{node};
  running = &doomed;
  while (!doomed.empty()) {
    Node* next = doomed.back();
    doomed.pop_back();
    delete next;
  }
  running = nullptr;
}

}  // namespace vox::autograd

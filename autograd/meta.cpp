#include <voxgrad/autograd/accumulate_grad.h>
#include <voxgrad/autograd/meta.h>

#include <mutex>

namespace vox::autograd {

namespace {
// Guards the first use of a leaf by two threads at once. Nothing else is locked while it is held.
std::mutex accumulator_mutex;
}  // namespace

AutogradMeta& meta_of(const Tensor& t) {
  auto& meta = t.impl()->autograd;
  if (!meta) meta = std::make_unique<AutogradMeta>();
  return *meta;
}

std::ostream& operator<<(std::ostream& out, const Quoted& name) {
  const std::string text = name.tensor.defined() ? name.tensor.name() : "";
  return text.empty() ? out : out << " \"" << text << '"';
}

Edge gradient_edge(const Tensor& t) {
  if (!t.defined() || !t.requires_grad()) return {};
  AutogradMeta& meta = meta_of(t);
  if (meta.node) return {meta.node, meta.output};
  const std::lock_guard lock(accumulator_mutex);
  std::shared_ptr<Node> accumulator = meta.accumulator.lock();
  if (!accumulator) {
    accumulator = make_node<AccumulateGrad>(t);
    meta.accumulator = accumulator;
  }
  return {accumulator, 0};
}

Tensor reattach(const Edge& edge, const Tensor& data) {
  if (auto* leaf = dynamic_cast<AccumulateGrad*>(edge.node.get())) return leaf->leaf(data);
  Tensor t = detail::alias(data, data.impl()->offset, data.shape(), data.strides());
  if (edge.node) {
    meta_of(t).node = edge.node;
    meta_of(t).output = edge.output;
  }
  return t;
}

}  // namespace vox::autograd

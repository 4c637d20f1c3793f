#include <voxgrad/autograd/accumulate_grad.h>
#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/checkpoint.h>
#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/saved_tensor.h>
#include <voxgrad/core/generator.h>
#include <voxgrad/ops/precision.h>

#include <algorithm>
#include <list>
#include <set>

// Note [Checkpoints]
//
// The forward records f as usual, on new leaves instead of the inputs, finds where that graph ends, and drops
// the graph. It ends at the inputs, and at tensors that f captured: leaves, and nodes from before the call.
// The checkpoint is one node with edges to all of them. Its backward records f again and returns the
// gradients that arrive at these ends. So the outer run sees them like those of any op: parameters get their
// gradient once, hooks run once, and vox::grad works.
//
// The node saves the inputs, which the second run needs, and the captured leaves, only to find out whether
// they were written since. Other captured tensors are not known: an edge leads to a node, not to its tensor.
//
// Under create_graph the second run takes inputs that are on the tape, so its gradients are on the tape too.

namespace vox {
namespace {

using autograd::Edge;
using autograd::Gradients;
using autograd::Node;
using autograd::SavedTensor;

/// f as it was recorded.
struct Region {
  std::vector<Tensor> inputs, outputs;
  std::vector<Edge> captured;  // where the graph ends, except at the inputs
};

Region record_region(const detail::CheckpointFunction& f, const std::vector<Tensor>& inputs, bool on_tape) {
  Region region;
  std::vector<Edge> ends;
  for (const Tensor& t : inputs) {
    Tensor input = t;
    if (t.defined() && t.requires_grad())
      input = on_tape ? t.expand(t.shape()) : t.detach().set_requires_grad();
    region.inputs.push_back(input);
    ends.push_back(autograd::gradient_edge(input));
  }
  const uint64_t start = autograd::gradient_edge(empty({}).set_requires_grad()).node->number();
  {
    const AutocastGuard own_casts(autocast_dtype());  // no cast is reused, so both runs record the same casts
    region.outputs = f(region.inputs);
  }

  std::set<const Node*> entered;
  std::vector<Edge> pending;
  for (const Tensor& t : region.outputs) {
    detail::check_defined("checkpoint", "the result of f", t);
    pending.push_back(autograd::gradient_edge(t));
  }
  while (!pending.empty()) {
    const Edge edge = pending.back();
    pending.pop_back();
    if (!edge.node) continue;
    const auto& edges = edge.node->edges();
    if (edge.node->number() < start || edges.empty()) {
      if (std::find(ends.begin(), ends.end(), edge) == ends.end()) ends.push_back(edge);
    } else if (entered.insert(edge.node.get()).second) {
      pending.insert(pending.end(), edges.begin(), edges.end());
    }
  }
  region.captured.assign(ends.begin() + static_cast<std::ptrdiff_t>(inputs.size()), ends.end());
  return region;
}

/// Which outputs are on the tape.
std::vector<bool> recorded_outputs(const Region& region) {
  std::vector<bool> recorded;
  for (const Tensor& t : region.outputs) recorded.push_back(t.requires_grad());
  return recorded;
}

/// Sets the default generator to `state` while it lives; then restores the previous state.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(GeneratorState state) : previous_(default_generator().state()) {
    default_generator().set_state(state);
  }
  ~GeneratorGuard() { default_generator().set_state(previous_); }
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  GeneratorState previous_;
};

struct CheckpointNode final : Node {
  detail::CheckpointFunction f_;
  std::list<SavedTensor> inputs_, leaves_;  // leaves_: those that f captured
  std::vector<Edge> captured_;
  std::vector<bool> recorded_;  // which results of f are outputs of this node
  GeneratorState random_;
  std::optional<DType> autocast_;
  Float32Precision precision_{};

  const char* name() const override { return "checkpoint"; }

  Gradients backward(Gradients gradients) override {
    const bool on_tape = grad_enabled();
    for (const SavedTensor& leaf : leaves_) leaf.get();  // throws if it was written
    Region region;
    {
      const GradModeGuard recording(true);
      const AutocastGuard autocast(autocast_);
      const PrecisionGuard precision(precision_);
      const GeneratorGuard random(random_);
      std::vector<Tensor> inputs;
      for (const SavedTensor& input : inputs_) inputs.push_back(input.get());
      region = record_region(f_, inputs, on_tape);
    }
    check<GradError>(
        region.captured == captured_ && recorded_outputs(region) == recorded_,
        "checkpoint: f used other tensors in backward than in forward; it must be a pure function "
        "of its inputs, of what it captured, and of default_generator()");
    std::vector<Edge> roots;
    std::vector<Tensor> seeds;
    size_t output = 0;
    for (const Tensor& t : region.outputs) {
      if (!t.requires_grad()) continue;
      check<GradError>(autograd::spec_of(t) == outputs()[output], "checkpoint: f returned shape ", t.shape(),
                       " and dtype ", t.dtype(), " in backward, but ", outputs()[output].shape, " and ",
                       outputs()[output].dtype, " in forward");
      if (auto& g = gradients[output++]) {
        roots.push_back(autograd::gradient_edge(t));
        seeds.push_back(std::move(*g));
      }
    }
    std::vector<Edge> wanted;
    std::vector<size_t> input_of;
    for (size_t i = 0; i < edges().size(); ++i) {
      if (!needs_grad(static_cast<int64_t>(i))) continue;
      wanted.push_back(i < inputs_.size() ? autograd::gradient_edge(region.inputs[i]) : edges()[i]);
      input_of.push_back(i);
    }
    Gradients found = autograd::gradients_at(wanted, roots, std::move(seeds), on_tape),
              results(edges().size());
    for (size_t i = 0; i < found.size(); ++i) results[input_of[i]] = std::move(found[i]);
    return results;
  }
};

}  // namespace

std::vector<Tensor> detail::checkpoint(const CheckpointFunction& f, const std::vector<Tensor>& inputs) {
  if (!grad_enabled()) return f(inputs);
  const GeneratorState random = default_generator().state();
  const Region region = record_region(f, inputs, false);
  const std::vector<bool> recorded = recorded_outputs(region);
  if (std::find(recorded.begin(), recorded.end(), true) == recorded.end()) return region.outputs;

  std::vector<Edge> edges;  // before the node: a leaf's AccumulateGrad takes the smaller number
  for (const Tensor& t : inputs) edges.push_back(autograd::gradient_edge(t));
  edges.insert(edges.end(), region.captured.begin(), region.captured.end());
  auto node = autograd::make_node<CheckpointNode>();
  node->set_edges(std::move(edges), inputs);
  std::vector<Tensor> results = region.outputs;
  for (Tensor& t : results) {
    if (!t.requires_grad()) continue;
    t = t.detach();
    node->add_output(t);
  }
  for (const Tensor& t : inputs) node->inputs_.emplace_back(node.get()).save(t);
  for (const Edge& edge : region.captured) {
    auto* accumulator = dynamic_cast<autograd::AccumulateGrad*>(edge.node.get());
    if (const auto leaf = accumulator ? accumulator->leaf_if_alive() : nullptr)
      node->leaves_.emplace_back(node.get()).save(Tensor(leaf));
  }
  node->f_ = f;
  node->captured_ = region.captured;
  node->recorded_ = recorded;
  node->random_ = random;
  node->autocast_ = autocast_dtype();
  node->precision_ = float32_precision();
  return results;
}

}  // namespace vox

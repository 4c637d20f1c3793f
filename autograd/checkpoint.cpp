#include <voxgrad/autograd/accumulate_grad.h>
#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/checkpoint.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/grad_plan.h>
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
// The checkpoint is one node with an edge for every edge of f's graph that leads to an end, in the order in
// which gradients go along them. Its backward records f again and returns the gradients that arrive, one by
// one. So the outer run adds the same gradients in the same order as without a checkpoint; parameters get
// their gradient once, hooks run once, and vox::grad works.
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
  std::vector<Edge> ends;    // where the graph ends: at each input, then at what f captured
  std::vector<size_t> uses;  // the end of each edge that leads to one, in the order of the backward
};

/// An edge that leads to an end. The backward takes nodes by descending numbers.
struct Use {
  uint64_t from;  // the number of its node
  size_t i, end;  // its place among the node's edges, and in Region::ends
  friend bool operator<(const Use& a, const Use& b) { return a.from != b.from ? a.from > b.from : a.i < b.i; }
};

/// Finds the ends and uses of a graph whose nodes have numbers from `start` on.
void find_ends(Region& region, uint64_t start) {
  std::vector<Use> uses;
  std::set<const Node*> entered;
  std::vector<const Node*> pending;
  const auto follow = [&](const Edge& edge, uint64_t from, size_t i) {
    if (!edge.node) return;
    if (edge.node->number() >= start && !edge.node->edges().empty()) {
      if (entered.insert(edge.node.get()).second) pending.push_back(edge.node.get());
      return;
    }
    const auto end = std::find(region.ends.begin(), region.ends.end(), edge) - region.ends.begin();
    if (end == std::ssize(region.ends)) region.ends.push_back(edge);
    uses.push_back({from, i, static_cast<size_t>(end)});
  };
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    detail::check_defined("checkpoint", "the result of f", region.outputs[i]);
    follow(autograd::gradient_edge(region.outputs[i]), UINT64_MAX, i);
  }
  while (!pending.empty()) {
    const Node* const node = pending.back();
    pending.pop_back();
    for (size_t i = 0; i < node->edges().size(); ++i) follow(node->edges()[i], node->number(), i);
  }
  std::sort(uses.begin(), uses.end());
  for (const Use& use : uses) region.uses.push_back(use.end);
  for (size_t input = 0; input < region.inputs.size(); ++input) {  // an edge for those that f does not use
    if (std::find(region.uses.begin(), region.uses.end(), input) == region.uses.end())
      region.uses.push_back(input);
  }
}

Region record_region(const detail::CheckpointFunction& f, const std::vector<Tensor>& inputs, bool on_tape) {
  Region region;
  for (const Tensor& t : inputs) {
    Tensor input = t;
    if (t.defined() && t.requires_grad())
      input = on_tape ? t.expand(t.shape()) : t.detach().set_requires_grad();
    region.inputs.push_back(input);
    region.ends.push_back(autograd::gradient_edge(input));
  }
  const uint64_t start = autograd::gradient_edge(empty({}).set_requires_grad()).node->number();
  {
    const AutocastGuard own_casts(autocast_dtype());  // no cast is reused, so both runs record the same casts
    region.outputs = f(region.inputs);
  }
  find_ends(region, start);
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
  std::vector<Edge> ends_;                  // with the inputs' own edges
  std::vector<size_t> uses_;                // see Region
  std::vector<bool> recorded_;              // which results of f are outputs of this node
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
    const auto inputs = std::ssize(inputs_);
    check<GradError>(
        std::equal(region.ends.begin() + inputs, region.ends.end(), ends_.begin() + inputs, ends_.end()) &&
            region.uses == uses_ && recorded_outputs(region) == recorded_,
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
    std::vector<size_t> end_of;  // of wanted edge i
    for (size_t end = 0; end < ends_.size(); ++end) {
      const auto use = std::find(uses_.begin(), uses_.end(), end);
      if (use == uses_.end() || !needs_grad(use - uses_.begin())) continue;
      wanted.push_back(region.ends[end]);
      end_of.push_back(end);
    }
    Gradients results(uses_.size());
    auto use = uses_.begin();  // arrivals come in the order of the uses
    for (auto& [end, gradient] : autograd::gradients_at(wanted, roots, std::move(seeds), on_tape)) {
      use = std::find(use, uses_.end(), end_of[end]);
      results[static_cast<size_t>(use++ - uses_.begin())] = std::move(gradient);
    }
    return results;
  }
};

}  // namespace

std::vector<Tensor> detail::checkpoint(const CheckpointFunction& f, const std::vector<Tensor>& inputs) {
  if (!grad_enabled()) return f(inputs);
  const GeneratorState random = default_generator().state();
  Region region = record_region(f, inputs, false);
  const std::vector<bool> recorded = recorded_outputs(region);
  if (std::find(recorded.begin(), recorded.end(), true) == recorded.end()) return region.outputs;

  for (size_t i = 0; i < inputs.size(); ++i) region.ends[i] = autograd::gradient_edge(inputs[i]);
  std::vector<Edge> edges;  // before the node: a leaf's AccumulateGrad takes the smaller number
  for (const size_t end : region.uses) edges.push_back(region.ends[end]);
  auto node = autograd::make_node<CheckpointNode>();
  node->set_edges(std::move(edges), inputs);
  std::vector<Tensor> results = region.outputs;
  for (Tensor& t : results) {
    if (!t.requires_grad()) continue;
    t = t.detach();
    node->add_output(t);
  }
  for (const Tensor& t : inputs) node->inputs_.emplace_back(node.get()).save(t);
  for (size_t end = inputs.size(); end < region.ends.size(); ++end) {
    auto* accumulator = dynamic_cast<autograd::AccumulateGrad*>(region.ends[end].node.get());
    if (const auto leaf = accumulator ? accumulator->leaf_if_alive() : nullptr)
      node->leaves_.emplace_back(node.get()).save(Tensor(leaf));
  }
  node->f_ = f;
  node->ends_ = region.ends;
  node->uses_ = region.uses;
  node->recorded_ = recorded;
  node->random_ = random;
  node->autocast_ = autocast_dtype();
  node->precision_ = float32_precision();
  return results;
}

}  // namespace vox

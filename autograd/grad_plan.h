#pragma once

#include <algorithm>
#include <unordered_set>
#include <vector>

#include <voxgrad/autograd/node.h>

namespace vox::autograd {

/// A gradient that arrived at end number `end`.
struct Arrival {
  size_t end;
  Tensor gradient;
};

/// For vox::grad: which nodes lead to a requested input, and the gradients that have arrived at these inputs.
/// "Beyond" a node means reachable from it by edges. If `stops`, neither the inputs' nodes nor those beyond
/// them run, so a gradient that passes through one input does not reach another; and gradients of one input
/// are not added.
class GradPlan {
 public:
  GradPlan(const std::vector<Edge>& roots, std::vector<Edge> inputs, bool stops = false)
      : captured(inputs.size()), requested_(std::move(inputs)), stops_(stops) {
    mark(roots);
  }

  /// True if a requested input is `node` or lies beyond it.
  bool wants(const Node& node) const { return leads_to_request_.contains(&node); }

  /// True if no requested input lies beyond `node`, which then need not run.
  bool ends_at(const Node& node) const {
    return std::none_of(node.edges().begin(), node.edges().end(),
                        [&](const Edge& e) { return e.node && wants(*e.node); });
  }

  /// If the run stops at `to`, keeps the gradient, which then is not sent on.
  bool stops_at(const Edge& to, Tensor& gradient) {
    const auto found = std::find(requested_.begin(), requested_.end(), to);
    if (!stops_ || found == requested_.end()) return false;
    arrived.push_back({static_cast<size_t>(found - requested_.begin()), std::move(gradient)});
    return true;
  }

  /// Keeps the gradients of `node` that were requested.
  void capture(const Node& node, const Gradients& gradients) {
    for (size_t i = 0; i < requested_.size(); ++i) {
      if (requested_[i].node.get() == &node)
        captured[i] = gradients[static_cast<size_t>(requested_[i].output)];
    }
  }

  Gradients captured;            ///< by requested input, unless the run stops there
  std::vector<Arrival> arrived;  ///< if it does

 private:
  // A depth-first walk with a stack of our own. Every edge leads to a lower number, so no node below the
  // lowest requested number leads to a request.
  void mark(const std::vector<Edge>& roots) {
    uint64_t lowest = UINT64_MAX;
    for (const Edge& e : requested_) {
      lowest = std::min(lowest, e.node->number());
      leads_to_request_.insert(e.node.get());
    }
    std::unordered_set<const Node*> entered;
    struct Visit {
      const Node* node;
      size_t next_edge;
    };
    std::vector<Visit> stack;
    const auto enter = [&](const Node* node) {
      if (node && node->number() >= lowest && entered.insert(node).second) stack.push_back({node, 0});
    };
    for (const Edge& root : roots) {
      enter(root.node.get());
      while (!stack.empty()) {
        Visit& top = stack.back();
        if (top.next_edge < top.node->edges().size()) {
          enter(top.node->edges()[top.next_edge++].node.get());
        } else {
          const Node* done = top.node;
          stack.pop_back();
          if (!ends_at(*done)) leads_to_request_.insert(done);
        }
      }
    }
  }

  std::vector<Edge> requested_;
  bool stops_;
  std::unordered_set<const Node*> leads_to_request_;
};

/// The gradients that arrive at `ends` for the gradients `seeds` of `roots`: one by one, in the order in
/// which backward() would add them, and before hooks. The nodes of the ends, and what lies beyond, do not
/// run.
std::vector<Arrival> gradients_at(const std::vector<Edge>& ends, const std::vector<Edge>& roots,
                                  std::vector<Tensor> seeds, bool create_graph);

}  // namespace vox::autograd

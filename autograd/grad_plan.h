#pragma once

#include <algorithm>
#include <unordered_set>
#include <vector>

#include <voxgrad/autograd/node.h>

namespace vox::autograd {

/// For vox::grad: which nodes lead to a requested input, and the gradients that have arrived at these inputs.
/// "Beyond" a node means reachable from it by edges. If `stops`, neither the inputs' nodes nor those beyond
/// them run, so a gradient that passes through one input does not reach another.
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

  /// Whether the run stops at `node`. If so, keeps the requested ones of its gradients.
  bool stops_at(const Node& node, const Gradients& gradients) {
    const auto is_here = [&](const Edge& e) { return e.node.get() == &node; };
    if (!stops_ || std::none_of(requested_.begin(), requested_.end(), is_here)) return false;
    capture(node, gradients);
    return true;
  }

  /// Keeps the gradients of `node` that were requested.
  void capture(const Node& node, const Gradients& gradients) {
    for (size_t i = 0; i < requested_.size(); ++i) {
      if (requested_[i].node.get() == &node)
        captured[i] = gradients[static_cast<size_t>(requested_[i].output)];
    }
  }

  Gradients captured;  ///< by requested input

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

}  // namespace vox::autograd

#pragma once

#include <memory>

#include <voxgrad/autograd/node.h>

namespace vox {

/// What the tape knows about one tensor. Tensors that take no part in gradients have none.
struct AutogradMeta {
  bool requires_grad = false;  ///< set by the user; for leaves only
  Tensor grad;

  std::shared_ptr<autograd::Node> node;  ///< the op that made this tensor; null for a leaf
  int64_t output = 0;                    ///< which output of `node` this tensor is

  std::weak_ptr<autograd::Node> accumulator;       ///< a leaf's AccumulateGrad, alive while a graph uses it
  std::shared_ptr<autograd::HookList> leaf_hooks;  ///< a leaf's hooks and name, shared with its accumulator
};

namespace autograd {

/// t's metadata, made on first use.
AutogradMeta& meta_of(const Tensor& t);

/// Prints the name of a tensor in messages, with a blank in front: ` "x"`. Prints nothing if it has no name.
struct Quoted {
  const Tensor& tensor;
};
std::ostream& operator<<(std::ostream& out, const Quoted& name);

/// Where gradients of `t` go: to the node that made it or, for a leaf, to its AccumulateGrad, which is made
/// and numbered when the leaf first enters a graph. Empty if t does not require grad.
Edge gradient_edge(const Tensor& t);

/// A tensor on the memory of `data` whose gradient goes to `edge`; the leaf itself if the edge leads to one.
Tensor reattach(const Edge& edge, const Tensor& data);

}  // namespace autograd
}  // namespace vox

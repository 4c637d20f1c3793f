#pragma once

#include <mutex>

#include <voxgrad/autograd/node.h>

namespace vox::autograd {

/// Where the tape ends: adds what arrives into the leaf's grad().
///
/// It takes its number when the leaf first enters a graph, just before the first op that uses the leaf: so it
/// runs after the last of them. Leaf and node know each other only weakly; a gradient that nobody can look at
/// any more is dropped.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(const Tensor& leaf);
  const char* name() const override { return "AccumulateGrad"; }
  Gradients backward(Gradients gradients) override;

  /// The leaf; or, if the user let go of it, a new leaf of this node on the memory of `data`. GradError if
  /// the leaf was given other memory since `data` was saved.
  Tensor leaf(const Tensor& data);

 private:
  std::mutex mutex_;  // threads may run backward through different graphs that share the leaf
  std::weak_ptr<TensorImpl> leaf_;
};

}  // namespace vox::autograd

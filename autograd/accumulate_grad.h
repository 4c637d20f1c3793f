#pragma once

#include <mutex>

#include <voxgrad/autograd/node.h>

namespace vox::autograd {

/// The end of the tape: adds each gradient that arrives to the leaf's grad().
///
/// It takes its number when the leaf first enters a graph, just before the first op that uses the leaf. So it
/// runs after all of them. Leaf and node refer to each other weakly: if the leaf no longer exists, its
/// gradient is dropped.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(const Tensor& leaf);
  const char* name() const override { return "AccumulateGrad"; }
  Gradients backward(Gradients gradients) override;

  /// The leaf; null if it no longer exists.
  std::shared_ptr<TensorImpl> leaf_if_alive();

  /// The leaf; or, if it no longer exists, a new leaf of this node on the memory of `data`. Throws GradError
  /// if the leaf was given other memory since `data` was saved.
  Tensor leaf(const Tensor& data);

 private:
  std::mutex mutex_;  // threads may run backward through different graphs that share the leaf
  std::weak_ptr<TensorImpl> leaf_;
};

}  // namespace vox::autograd

#pragma once

#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/reduce_plan.h>

namespace vox::detail {

/// The node of a sum or mean of |d| or d^2, with d = x - target, or x alone. The gradient of sum |d| is g *
/// sign(d), and that of sum d^2 is g * 2 d. A mean divides them by the count.
struct DifferenceNode : autograd::Node {
  explicit DifferenceNode(const char* name) : name_(name) {}
  const char* name() const override { return name_; }
  autograd::Gradients backward(autograd::Gradients g) override;

  const char* name_;
  Shape keepdim_shape_;
  bool is_sign_ = false;
  double factor_ = 1;
  autograd::SavedTensor saved_x_{this}, saved_target_{this};

 protected:
  /// The factor of d, or of its sign, for g; in opmath, and of keepdim_shape_.
  virtual Tensor scale(const Tensor& g) const;
};

/// Recorded: the sum or mean of the magnitudes or squares of x - target, or of x alone if `target` is
/// undefined. x and target have one shape, dtype and device. `dtype` is theirs or its opmath.
Tensor reduced_difference(const char* function, ReduceKind kind, const Tensor& x, const Tensor& target,
                          const ReducePlan& plan, DType dtype);

}  // namespace vox::detail

#pragma once

#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/broadcast.h>

// What ops of one operand share: the call, and what a node keeps for its gradient.

namespace vox::detail {

using autograd::Gradients;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;

/// Whether autocast computes the op in f32.
inline bool wants_f32(Unary op) {
  return op == Unary::exp || op == Unary::log || op == Unary::rsqrt || op == Unary::softplus;
}

/// Checks, computes, and records an N (whose save(x, y) keeps what its backward needs).
template <class N>
Tensor unary(const char* function, Unary op, const Tensor& x, Scalar p = 0, Scalar q = 0) {
  if (wants_f32(op) && autocast_widens(x)) return unary<N>(function, op, x.to(f32), p, q);
  if (takes_integers(op))
    check_arithmetic(function, "x", x);
  else
    check_floating(function, "x", x);
  Tensor y = empty_for(function, x.shape(), x.options());
  unary_kernel.on(x.device())(op, x, y, p, q);
  if (auto node = record<N>({x}, y)) {
    node->op_ = op;
    node->p_ = p.as_real(), node->q_ = q.as_real();
    node->save(x, y);
  }
  return y;
}

// What a node keeps: nothing, its input, or its output.
struct UnaryNode : Node {
  Unary op_{};
  double p_ = 0, q_ = 0;
  void save(const Tensor&, const Tensor&) {}
};
struct InputNode : UnaryNode {
  SavedTensor saved_x_{this};
  void save(const Tensor& x, const Tensor&) { saved_x_.save(x); }
};
struct OutputNode : UnaryNode {
  SavedTensor saved_y_{this};
  void save(const Tensor&, const Tensor& y) { saved_y_.save(y); }
};

/// A node whose gradient takes several ops. If backward is not recorded, one kernel computes the gradient;
/// its formula stands beside the op's kernel formula. Otherwise `gradient` does, from g and the saved tensor
/// in opmath(dtype). Either way the gradient of a 16-bit tensor is rounded once.
template <class Keeping, SavedTensor Keeping::*kept>
struct ComposedNode : Keeping {
  virtual Tensor gradient(const Tensor& g, const Tensor& kept_tensor) const = 0;
  Gradients backward(Gradients g) final {
    const Tensor kept_tensor = (this->*kept).get();
    const DType dtype = g[0]->dtype(), wide = opmath(dtype);
    if (grad_enabled()) return {gradient(g[0]->to(wide), kept_tensor.to(wide)).to(dtype)};
    Tensor grad_x = empty_for(this->name(), g[0]->shape(), g[0]->options());
    unary_gradient_kernel.on(grad_x.device())(this->op_, *g[0], kept_tensor, grad_x, this->p_, this->q_);
    return {grad_x};
  }
};
using ComposedOfInput = ComposedNode<InputNode, &InputNode::saved_x_>;
using ComposedOfOutput = ComposedNode<OutputNode, &OutputNode::saved_y_>;

/// The node of a piecewise constant function, whose gradient is 0.
template <Unary op>
struct StepNode final : UnaryNode {
  const char* name() const override {
    return op == Unary::sign ? "sign" : op == Unary::floor ? "floor" : op == Unary::ceil ? "ceil" : "round";
  }
  Gradients backward(Gradients g) override { return {no_gradient(*g[0])}; }
};

}  // namespace vox::detail

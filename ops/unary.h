#pragma once

#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise_formulas.h>

// What ops of one operand share: the call and the node. ops/elementwise_formulas.h has their formulas, each
// gradient's beside its op's.

namespace vox::detail {

/// Whether autocast computes the op in f32.
inline bool wants_f32(Unary op) {
  return op == Unary::exp || op == Unary::log || op == Unary::rsqrt || op == Unary::softplus;
}

/// The arithmetic of a gradient that is recorded: numbers are tensors, so every function is an op.
struct Recorded {
  using Number = Scalar;
  static Tensor sign(const Tensor& x) { return vox::sign(x); }
  static Tensor magnitude(const Tensor& x) { return abs(x); }
  static Tensor exp(const Tensor& x) { return vox::exp(x); }
  static Tensor sigmoid(const Tensor& x) { return vox::sigmoid(x); }
  static Tensor choose(const Tensor& c, const Tensor& a, const Tensor& b) { return where(c, a, b); }
  static Tensor choose(const Tensor& c, const Tensor& a, Scalar b) { return detail::where(c, a, b); }
  static Tensor choose(const Tensor& c, Scalar a, const Tensor& b) { return where(c, a, b); }
  /// x, or 0 where the condition holds and a choice hides the result: the gradient there, which is multiplied
  /// by 0, must be finite.
  static Tensor unless(const Tensor& condition, const Tensor& x) { return where(condition, 0, x); }
};

template <Unary op, class Arithmetic>
struct UnaryNode final : autograd::Node {
  explicit UnaryNode(const char* function) : function_(function) {}

  const char* function_;
  Scalar p_ = 0, q_ = 0;
  autograd::SavedTensor kept_{this};

  const char* name() const override { return function_; }
  /// If backward is not recorded, one kernel computes a gradient of several ops. Otherwise ops do, in
  /// opmath(dtype). Either way the gradient of a 16-bit tensor is rounded once.
  autograd::Gradients backward(autograd::Gradients grads) override {
    const Tensor& g = *grads[0];
    if constexpr (is_step(op)) {
      return {no_gradient(g)};
    } else if constexpr (keeps(op) == Keeps::nothing) {
      return {-g};
    } else {
      const Tensor kept = kept_.get();
      const DType wide = has_gradient(op) ? opmath(g.dtype()) : g.dtype();
      if (grad_enabled() || !has_gradient(op))
        return {gradient_formula<op, Arithmetic>(g.to(wide), kept.to(wide), p_, q_).to(g.dtype())};
      Tensor grad_x = empty_for(function_, g.shape(), g.options());
      unary_gradient_kernel.on(g.device())(op, g, kept, grad_x, p_, q_);
      return {grad_x};
    }
  }
};

/// Checks, computes, and records.
template <Unary op, class Arithmetic = Recorded>
Tensor unary(const char* function, const Tensor& x, Scalar p = 0, Scalar q = 0) {
  if (wants_f32(op) && autocast_widens(x)) return unary<op, Arithmetic>(function, x.to(f32), p, q);
  if (takes_integers(op))
    check_arithmetic(function, "x", x);
  else
    check_floating(function, "x", x);
  Tensor y = empty_for(function, x.shape(), x.options());
  unary_kernel.on(x.device())(op, x, y, p, q);
  if (auto node = autograd::record<UnaryNode<op, Arithmetic>>({x}, y, function)) {
    node->p_ = p, node->q_ = q;
    if (keeps(op) != Keeps::nothing) node->kept_.save(keeps(op) == Keeps::output ? y : x);
  }
  return y;
}

}  // namespace vox::detail

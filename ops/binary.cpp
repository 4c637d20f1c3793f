#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/sum.h>

// Arithmetic of two operands. The gradient of an operand that was broadcast is summed to the operand's shape.

namespace vox {

using autograd::Gradients;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;

// ---- add, sub ---------------------------------------------------------------------------------------------

namespace {

struct AddNode : Node {
  const char* name() const override { return "add"; }
  Gradients backward(Gradients g) override {
    return {if_needed(0, [&] { return sum_to(*g[0], shape_a_); }),
            if_needed(1, [&] { return sum_to(*g[0], shape_b_); })};
  }
  Shape shape_a_, shape_b_;
};

struct SubNode final : AddNode {
  const char* name() const override { return "sub"; }
  Gradients backward(Gradients g) override {
    Gradients grads = AddNode::backward(std::move(g));
    if (grads[1]) grads[1] = neg(*grads[1]);
    return grads;
  }
};

struct AddNumberNode final : Node {
  const char* name() const override { return "add"; }
  Gradients backward(Gradients g) override { return {g[0]}; }
};

struct NumberSubNode final : Node {
  const char* name() const override { return "sub"; }
  Gradients backward(Gradients g) override { return {neg(*g[0])}; }
};

template <class N>
Tensor add_as(const char* function, Binary op, const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return add_as<N>(function, op, a.to(f32), b.to(f32));
  Tensor y = detail::binary(function, op, a, b);
  if (auto node = record<N>({a, b}, y)) {
    node->shape_a_ = a.shape();
    node->shape_b_ = b.shape();
  }
  return y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return add_as<AddNode>("add", Binary::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return add_as<SubNode>("sub", Binary::sub, a, b); }

Tensor add(const Tensor& a, Scalar b) {
  Tensor y = detail::binary("add", Binary::add, a, b);
  record<AddNumberNode>({a}, y);
  return y;
}

Tensor sub(const Tensor& a, Scalar b) {
  Tensor y = detail::binary("sub", Binary::sub, a, b);
  record<AddNumberNode>({a}, y);
  return y;
}

Tensor sub(Scalar a, const Tensor& b) {
  Tensor y = detail::binary("sub", Binary::sub, a, b);
  record<NumberSubNode>({b}, y);
  return y;
}

// ---- mul ------------------------------------------------------------------------------------------------

namespace {
struct MulNode final : Node {
  SavedTensor saved_a_{this}, saved_b_{this};
  const char* name() const override { return "mul"; }
  Gradients backward(Gradients g) override {
    const Tensor a = saved_a_.get(), b = saved_b_.get();
    return {if_needed(0, [&] { return sum_to(*g[0] * b, a.shape()); }),
            if_needed(1, [&] { return sum_to(*g[0] * a, b.shape()); })};
  }
};

struct MulNumberNode final : Node {
  const char* name() const override { return "mul"; }
  Gradients backward(Gradients g) override { return {*g[0] * b_}; }
  Scalar b_ = 0;
};
}  // namespace

Tensor mul(const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return mul(a.to(f32), b.to(f32));
  Tensor y = detail::binary("mul", Binary::mul, a, b);
  if (auto node = record<MulNode>({a, b}, y)) {
    node->saved_a_.save(a);
    node->saved_b_.save(b);
  }
  return y;
}

Tensor mul(const Tensor& a, Scalar b) {
  Tensor y = detail::binary("mul", Binary::mul, a, b);
  if (auto node = record<MulNumberNode>({a}, y)) node->b_ = b;
  return y;
}

// ---- div: da = g / b, db = -g (a / b) / b -----------------------------------------------------------------

namespace {

/// The gradient of b, for a tensor or a number a. Computed in opmath(dtype) and rounded once.
template <class A>
Tensor divisor_gradient(const Tensor& g, const A& a, const Tensor& b) {
  const DType wide = opmath(b.dtype());
  const Tensor d = b.to(wide);
  if constexpr (std::is_same_v<A, Tensor>)
    return (-g.to(wide) * (a.to(wide) / d / d)).to(b.dtype());
  else
    return (-g.to(wide) * (a / d / d)).to(b.dtype());
}

struct DivNode final : Node {
  SavedTensor saved_a_{this}, saved_b_{this};
  const char* name() const override { return "div"; }
  Gradients backward(Gradients g) override {
    const Tensor a = saved_a_.get(), b = saved_b_.get();
    return {if_needed(0, [&] { return sum_to(*g[0] / b, a.shape()); }), if_needed(1, [&] {
              const Tensor fused = detail::binary_gradient("div", Binary::div, 1, *g[0], a, b);
              return sum_to(fused.defined() ? fused : divisor_gradient(*g[0], a, b), b.shape());
            })};
  }
};

struct DivNumberNode final : Node {
  const char* name() const override { return "div"; }
  Gradients backward(Gradients g) override { return {*g[0] / b_}; }
  Scalar b_ = 1;
};

struct NumberDivNode final : Node {
  SavedTensor saved_b_{this};
  const char* name() const override { return "div"; }
  Gradients backward(Gradients g) override { return {divisor_gradient(*g[0], a_, saved_b_.get())}; }
  Scalar a_ = 0;
};
}  // namespace

Tensor div(const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return div(a.to(f32), b.to(f32));
  detail::check_floating("div", "a", a);
  Tensor y = detail::binary("div", Binary::div, a, b);
  if (auto node = record<DivNode>({a, b}, y)) {
    node->saved_a_.save(a);
    node->saved_b_.save(b);
  }
  return y;
}

Tensor div(const Tensor& a, Scalar b) {
  detail::check_floating("div", "a", a);
  Tensor y = detail::binary("div", Binary::div, a, b);
  if (auto node = record<DivNumberNode>({a}, y)) node->b_ = b;
  return y;
}

Tensor div(Scalar a, const Tensor& b) {
  detail::check_floating("div", "b", b);
  Tensor y = detail::binary("div", Binary::div, a, b);
  if (auto node = record<NumberDivNode>({b}, y)) {
    node->a_ = a;
    node->saved_b_.save(b);
  }
  return y;
}

}  // namespace vox

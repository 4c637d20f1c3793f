#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/sum.h>

#include <functional>

// Arithmetic of two operands. The gradient of an operand that was broadcast is summed to the operand's shape.

namespace vox {

using namespace autograd;

// ---- add, sub ---------------------------------------------------------------------------------------------

namespace {

constexpr std::identity same{};  // the gradient is g
constexpr auto negated = [](const Tensor& g) { return neg(g); };

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return add(a.to(f32), b.to(f32));
  const Tensor y = detail::binary("add", Binary::add, a, b);
  return linear(
      "add", {a, b}, y, [shape = a.shape()](const Tensor& g) { return sum_to(g, shape); },
      [shape = b.shape()](const Tensor& g) { return sum_to(g, shape); });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return sub(a.to(f32), b.to(f32));
  const Tensor y = detail::binary("sub", Binary::sub, a, b);
  return linear(
      "sub", {a, b}, y, [shape = a.shape()](const Tensor& g) { return sum_to(g, shape); },
      [shape = b.shape()](const Tensor& g) { return neg(sum_to(g, shape)); });
}

Tensor add(const Tensor& a, Scalar b) {
  return linear("add", {a}, detail::binary("add", Binary::add, a, b), same);
}
Tensor sub(const Tensor& a, Scalar b) {
  return linear("sub", {a}, detail::binary("sub", Binary::sub, a, b), same);
}
Tensor sub(Scalar a, const Tensor& b) {
  return linear("sub", {b}, detail::binary("sub", Binary::sub, a, b), negated);
}

// ---- mul ------------------------------------------------------------------------------------------------

namespace {
struct MulNode final : PairNode {
  const char* name() const override { return "mul"; }
  Gradients backward(Gradients g) override {
    return {if_needed(0, [&] { return sum_to(*g[0] * saved_b_.get(), input_shape(0)); }),
            if_needed(1, [&] { return sum_to(*g[0] * saved_a_.get(), input_shape(1)); })};
  }
};
}  // namespace

Tensor mul(const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return mul(a.to(f32), b.to(f32));
  Tensor y = detail::binary("mul", Binary::mul, a, b);
  if (auto node = record<MulNode>({a, b}, y)) node->save_factors(a, b);
  return y;
}

Tensor mul(const Tensor& a, Scalar b) {
  const Tensor y = detail::binary("mul", Binary::mul, a, b);
  return linear("mul", {a}, y, [b](const Tensor& g) { return g * b; });
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

struct DivNode final : PairNode {
  const char* name() const override { return "div"; }
  Gradients backward(Gradients g) override {
    const Tensor b = saved_b_.get();
    return {if_needed(0, [&] { return sum_to(*g[0] / b, input_shape(0)); }), if_needed(1, [&] {
              const Tensor a = saved_a_.get();
              const Tensor fused = detail::binary_gradient("div", Binary::div, 1, *g[0], a, b);
              return sum_to(fused.defined() ? fused : divisor_gradient(*g[0], a, b), b.shape());
            })};
  }
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
  if (auto node = record<DivNode>({a, b}, y)) node->saved_a_.save_for(1, a), node->saved_b_.save(b);
  return y;
}

Tensor div(const Tensor& a, Scalar b) {
  detail::check_floating("div", "a", a);
  const Tensor y = detail::binary("div", Binary::div, a, b);
  return linear("div", {a}, y, [b](const Tensor& g) { return g / b; });
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

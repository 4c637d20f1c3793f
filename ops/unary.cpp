#include <voxgrad/ops/unary.h>

// The ops of one operand that most networks need; functions.cpp has the others. Each gradient stands under
// its op; g is the gradient of y = op(x):
//
//   neg   -g           exp   g y       relu     g where y is not 0
//   abs   g sign(x)    log   g / x     sigmoid  g y (1 - y)
//   sign  0            sqrt  g / 2y    tanh     g (1 - y^2)

namespace vox {

using detail::ComposedOfInput, detail::ComposedOfOutput, detail::InputNode, detail::OutputNode;
using detail::Gradients, detail::StepNode, detail::unary, detail::UnaryNode;

namespace {

struct NegNode final : UnaryNode {
  const char* name() const override { return "neg"; }
  Gradients backward(Gradients g) override { return {neg(*g[0])}; }
};
struct AbsNode final : ComposedOfInput {
  const char* name() const override { return "abs"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override { return g * sign(x); }
};
struct ExpNode final : OutputNode {
  const char* name() const override { return "exp"; }
  Gradients backward(Gradients g) override { return {*g[0] * saved_y_.get()}; }
};
struct LogNode final : InputNode {
  const char* name() const override { return "log"; }
  Gradients backward(Gradients g) override { return {*g[0] / saved_x_.get()}; }
};
struct SqrtNode final : ComposedOfOutput {
  const char* name() const override { return "sqrt"; }
  Tensor gradient(const Tensor& g, const Tensor& y) const override { return g / (2 * y); }
};
struct TanhNode final : ComposedOfOutput {
  const char* name() const override { return "tanh"; }
  Tensor gradient(const Tensor& g, const Tensor& y) const override { return g * (1 - y * y); }
};
struct SigmoidNode final : ComposedOfOutput {
  const char* name() const override { return "sigmoid"; }
  Tensor gradient(const Tensor& g, const Tensor& y) const override { return g * (y * (1 - y)); }
};
struct ReluNode final : ComposedOfOutput {  // keeps y, which the next op often keeps anyway
  const char* name() const override { return "relu"; }
  // y is never negative, so ne() means y > 0 or NaN: a NaN passes g on, so that its origin can be found.
  Tensor gradient(const Tensor& g, const Tensor& y) const override { return detail::where(ne(y, 0), g, 0); }
};

}  // namespace

Tensor neg(const Tensor& x) { return unary<NegNode>("neg", Unary::neg, x); }
Tensor abs(const Tensor& x) { return unary<AbsNode>("abs", Unary::abs, x); }
Tensor sign(const Tensor& x) { return unary<StepNode<Unary::sign>>("sign", Unary::sign, x); }
Tensor exp(const Tensor& x) { return unary<ExpNode>("exp", Unary::exp, x); }
Tensor log(const Tensor& x) { return unary<LogNode>("log", Unary::log, x); }
Tensor sqrt(const Tensor& x) { return unary<SqrtNode>("sqrt", Unary::sqrt, x); }
Tensor tanh(const Tensor& x) { return unary<TanhNode>("tanh", Unary::tanh, x); }
Tensor sigmoid(const Tensor& x) { return unary<SigmoidNode>("sigmoid", Unary::sigmoid, x); }
Tensor relu(const Tensor& x) { return unary<ReluNode>("relu", Unary::relu, x); }

}  // namespace vox

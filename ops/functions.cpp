#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/sum.h>
#include <voxgrad/ops/unary.h>

#include <cmath>
#include <limits>
#include <numbers>

// More ops of one operand. Each gradient stands under its op; g is the gradient of y = op(x):
//
//   clamp  g inside       rsqrt  -g y^3 / 2           leaky_relu  g where x > 0, slope g elsewhere
//   sin    g cos(x)       cos    -g sin(x)            floor, ceil, round  0
//   log1p  g / (1 + x)    expm1  g (1 + y)            erf         g 2/sqrt(pi) exp(-x^2)
//   gelu   g (Phi(x) + x phi(x)), with the normal distribution Phi and its density phi
//   silu   g s (1 + x (1 - s)), s = sigmoid(x)
//   mish   g (w + x sigmoid(x) (1 - w^2)), w = tanh(softplus(x))
//   elu    g where x > 0, g alpha exp(x) elsewhere
//   softplus     g where beta x > threshold, g sigmoid(beta x) elsewhere
//   hardtanh     g strictly inside, and at NaN
//   hardsigmoid  g / 6 where -3 < x < 3
//   hardswish    0 where x <= -3, g where x >= 3, g (x / 3 + 1/2) between

namespace vox {

using autograd::Gradients, autograd::Node, autograd::record, autograd::SavedTensor;
using detail::ComposedOfInput, detail::ComposedOfOutput, detail::InputNode, detail::OutputNode;
using detail::StepNode, detail::unary, detail::UnaryNode;

namespace {

/// floor, ceil or round. Integers are copied: they are whole already.
template <Unary op>
Tensor rounded(const char* function, const Tensor& x) {
  detail::check_arithmetic(function, "x", x);
  if (is_floating(x.dtype())) return unary<StepNode<op>>(function, op, x);
  return in_the_name_of(function, [&] { return x.clone(); });
}
struct ClampNode final : ComposedOfInput {
  const char* name() const override { return "clamp"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    return detail::where(ge(x, p_), detail::where(le(x, q_), g, 0), 0);
  }
};

/// The gradient goes to the operand whose element is the result: to x at a bound, and to none where one is
/// NaN or x is below equal bounds, as in PyTorch.
struct ClampByTensorsNode final : Node {
  SavedTensor x_{this}, min_{this}, max_{this};
  const char* name() const override { return "clamp"; }
  Gradients backward(Gradients g) override {
    const Tensor x = x_.get(), min = min_.get(), max = max_.get();
    const bool both = min.defined() && max.defined();
    const auto where_true = [&](const Tensor& mask, const Tensor& operand) {
      return sum_to(where(mask, *g[0], 0), operand.shape());
    };
    return {
        if_needed(0,
                  [&] {
                    if (both) return where_true(logical_and(ge(x, min), le(x, max)), x);
                    return where_true(min.defined() ? ge(x, min) : le(x, max), x);
                  }),
        if_needed(1,
                  [&] { return where_true(both ? logical_and(lt(x, min), lt(min, max)) : lt(x, min), min); }),
        if_needed(2,
                  [&] { return where_true(both ? logical_or(gt(x, max), lt(max, min)) : gt(x, max), max); })};
  }
};

/// Checks the bounds of clamp and hardtanh.
template <class N>
Tensor bounded(const char* function, Unary op, const Tensor& x, Scalar min, Scalar max) {
  detail::check_defined(function, "x", x);
  detail::check_scalar(function, min, x.dtype());
  detail::check_scalar(function, max, x.dtype());
  check<ValueError>(min.as_real() <= max.as_real(), function, ": min must not exceed max, got ",
                    min.as_real(), " and ", max.as_real());
  return unary<N>(function, op, x, min, max);
}

}  // namespace

Tensor floor(const Tensor& x) { return rounded<Unary::floor>("floor", x); }
Tensor ceil(const Tensor& x) { return rounded<Unary::ceil>("ceil", x); }
Tensor round(const Tensor& x) { return rounded<Unary::round>("round", x); }

Tensor clamp(const Tensor& x, Scalar min, Scalar max) {
  return bounded<ClampNode>("clamp", Unary::clamp, x, min, max);
}

Tensor clamp(const Tensor& x, const ClampOptions& bounds) {
  check<ValueError>(bounds.min || bounds.max, "clamp: needs min, max or both, got neither");
  detail::check_defined("clamp", "x", x);
  using Whole = std::numeric_limits<int64_t>;
  const double infinity = std::numeric_limits<double>::infinity();
  const bool real = is_floating(x.dtype()), byte = x.dtype() == u8;
  const Scalar lowest = real ? Scalar(-infinity) : Scalar(byte ? 0 : Whole::min());
  const Scalar highest = real ? Scalar(infinity) : Scalar(byte ? 255 : Whole::max());
  return clamp(x, bounds.min.value_or(lowest), bounds.max.value_or(highest));
}

Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) {
  check<ValueError>(min.defined() || max.defined(), "clamp: needs min, max or both, got neither");
  detail::check_defined("clamp", "x", x);
  return in_the_name_of("clamp", [&] {
    using detail::autocast_mixes;
    const auto wide = [](const Tensor& t) { return t.defined() ? t.to(f32) : t; };
    if (autocast_mixes(x, min) || autocast_mixes(x, max) || autocast_mixes(min, max))
      return clamp(wide(x), wide(min), wide(max));
    Tensor y = x.detach();
    {
      const auto guard = no_grad();
      if (min.defined()) y = where(logical_or(lt(y, min), isnan(min)), min, y);
      if (max.defined()) y = where(logical_or(gt(y, max), isnan(max)), max, y);
    }
    if (auto node = record<ClampByTensorsNode>({x, min, max}, y))
      node->x_.save(x), node->min_.save(min), node->max_.save(max);
    return y;
  });
}

// ---- Functions --------------------------------------------------------------------------------------------

namespace {

struct RsqrtNode final : ComposedOfOutput {
  const char* name() const override { return "rsqrt"; }
  Tensor gradient(const Tensor& g, const Tensor& y) const override { return g * (y * y * y * -0.5); }
};
struct SinNode final : ComposedOfInput {
  const char* name() const override { return "sin"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override { return g * cos(x); }
};
struct CosNode final : ComposedOfInput {
  const char* name() const override { return "cos"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override { return g * -sin(x); }
};
struct Log1pNode final : ComposedOfInput {
  const char* name() const override { return "log1p"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override { return g / (x + 1); }
};
struct Expm1Node final : ComposedOfOutput {
  const char* name() const override { return "expm1"; }
  Tensor gradient(const Tensor& g, const Tensor& y) const override { return g * (y + 1); }
};
struct ErfNode final : ComposedOfInput {
  const char* name() const override { return "erf"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    return g * (exp(-(x * x)) * (2 * std::numbers::inv_sqrtpi));
  }
};

}  // namespace

Tensor rsqrt(const Tensor& x) { return unary<RsqrtNode>("rsqrt", Unary::rsqrt, x); }
Tensor sin(const Tensor& x) { return unary<SinNode>("sin", Unary::sin, x); }
Tensor cos(const Tensor& x) { return unary<CosNode>("cos", Unary::cos, x); }
Tensor log1p(const Tensor& x) { return unary<Log1pNode>("log1p", Unary::log1p, x); }
Tensor expm1(const Tensor& x) { return unary<Expm1Node>("expm1", Unary::expm1, x); }
Tensor erf(const Tensor& x) { return unary<ErfNode>("erf", Unary::erf, x); }

// ---- Activations ------------------------------------------------------------------------------------------

namespace {

struct LeakyReluNode final : ComposedOfInput {
  const char* name() const override { return "leaky_relu"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override { return where(gt(x, 0), g, g * p_); }
};
struct HardtanhNode final : ComposedOfInput {
  const char* name() const override { return "hardtanh"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    const Tensor none = full({}, 0, g.options());
    return where(le(x, p_), none, where(ge(x, q_), none, g));  // a NaN passes g on, as in relu
  }
};
struct HardsigmoidNode final : ComposedOfInput {
  const char* name() const override { return "hardsigmoid"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    return detail::where(gt(x, -3), detail::where(lt(x, 3), g / 6, 0), 0);
  }
};
struct HardswishNode final : ComposedOfInput {
  const char* name() const override { return "hardswish"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    const Tensor between = g * (hardtanh(x, -3, 3) / 3 + 0.5);
    return where(ge(x, 3), g, where(le(x, -3), full({}, 0, g.options()), between));
  }
};
struct EluNode final : ComposedOfInput {
  const char* name() const override { return "elu"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    // exp(x) of a large x is infinite, and the second gradient would multiply it by 0. So 0 replaces every x
    // that is not negative.
    const Tensor negative_part = where(ge(x, 0), full({}, 0, x.options()), x);
    return where(gt(x, 0), g, g * (exp(negative_part) * p_));
  }
};
struct SoftplusNode final : ComposedOfInput {
  const char* name() const override { return "softplus"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    return where(gt(x * p_, q_), g, g * sigmoid(x * p_));
  }
};
struct GeluNode final : ComposedOfInput {
  const char* name() const override { return "gelu"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    const Tensor distribution = (1 + erf(x * std::sqrt(0.5))) * 0.5;
    const Tensor density = exp(x * x * -0.5) * (std::numbers::inv_sqrtpi * std::sqrt(0.5));
    return g * (distribution + x * density);
  }
};
struct SiluNode final : ComposedOfInput {
  const char* name() const override { return "silu"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    const Tensor s = sigmoid(x);
    return g * (s * (1 + x * (1 - s)));
  }
};
struct MishNode final : ComposedOfInput {
  const char* name() const override { return "mish"; }
  Tensor gradient(const Tensor& g, const Tensor& x) const override {
    const Tensor w = tanh(softplus(x));
    return g * (w + x * sigmoid(x) * (1 - w * w));
  }
};

}  // namespace

Tensor leaky_relu(const Tensor& x, Real negative_slope) {
  return unary<LeakyReluNode>("leaky_relu", Unary::leaky_relu, x, negative_slope);
}
Tensor gelu(const Tensor& x) { return unary<GeluNode>("gelu", Unary::gelu, x); }
Tensor gelu_tanh(const Tensor& x) {
  detail::check_floating("gelu_tanh", "x", x);
  return in_the_name_of("gelu_tanh", [&] {
    const Tensor v = x.to(opmath(x.dtype()));  // (1 + tanh(u)) / 2 is sigmoid(2 u)
    return (v * sigmoid(v * (1 + 0.044715 * (v * v)) * std::sqrt(8 / std::numbers::pi))).to(x.dtype());
  });
}
Tensor silu(const Tensor& x) { return unary<SiluNode>("silu", Unary::silu, x); }
Tensor mish(const Tensor& x) { return unary<MishNode>("mish", Unary::mish, x); }
Tensor elu(const Tensor& x, Real alpha) { return unary<EluNode>("elu", Unary::elu, x, alpha); }
Tensor softplus(const Tensor& x, Real beta, Real threshold) {
  return unary<SoftplusNode>("softplus", Unary::softplus, x, beta, threshold);
}
Tensor hardtanh(const Tensor& x, Scalar min, Scalar max) {
  return bounded<HardtanhNode>("hardtanh", Unary::hardtanh, x, min, max);
}
Tensor relu6(const Tensor& x) { return bounded<HardtanhNode>("relu6", Unary::hardtanh, x, 0, 6); }
Tensor hardsigmoid(const Tensor& x) { return unary<HardsigmoidNode>("hardsigmoid", Unary::hardsigmoid, x); }
Tensor hardswish(const Tensor& x) { return unary<HardswishNode>("hardswish", Unary::hardswish, x); }

}  // namespace vox

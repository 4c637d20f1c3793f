#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/elementwise_formulas.h>

#include <cmath>
#include <limits>
#include <numbers>

// Ops of one operand. ops/elementwise_formulas.h has their formulas, each gradient's beside its op's.

namespace vox {

using autograd::Gradients;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;

namespace {

/// Whether autocast computes the op in f32.
bool wants_f32(Unary op) {
  return op == Unary::exp || op == Unary::log || op == Unary::rsqrt || op == Unary::softplus;
}

/// The arithmetic of a gradient that is recorded: numbers are tensors, so every function is an op.
struct Recorded {
  using Number = Scalar;
  static Tensor sign(const Tensor& x) { return vox::sign(x); }
  static Tensor magnitude(const Tensor& x) { return abs(x); }
  static Tensor exp(const Tensor& x) { return vox::exp(x); }
  static Tensor sin(const Tensor& x) { return vox::sin(x); }
  static Tensor cos(const Tensor& x) { return vox::cos(x); }
  static Tensor sigmoid(const Tensor& x) { return vox::sigmoid(x); }
  static Tensor choose(const Tensor& c, const Tensor& a, const Tensor& b) { return where(c, a, b); }
  static Tensor choose(const Tensor& c, const Tensor& a, Scalar b) { return detail::where(c, a, b); }
  static Tensor choose(const Tensor& c, Scalar a, const Tensor& b) { return where(c, a, b); }
  /// x, or 0 where the condition holds and a choice hides the result: the gradient there, which is multiplied
  /// by 0, must be finite.
  static Tensor unless(const Tensor& condition, const Tensor& x) { return where(condition, 0, x); }
  /// With the normal distribution and its density.
  static Tensor gelu_slope(const Tensor& x) {
    const Tensor distribution = (1 + erf(x * std::sqrt(0.5))) * 0.5;
    const Tensor density = vox::exp(x * x * -0.5) * (std::numbers::inv_sqrtpi * std::sqrt(0.5));
    return distribution + x * density;
  }
  static Tensor mish_slope(const Tensor& x) {
    const Tensor w = tanh(softplus(x));
    return w + x * sigmoid(x) * (1 - w * w);
  }
};

template <Unary op>
struct UnaryNode final : Node {
  const char* function_ = "";
  Scalar p_ = 0, q_ = 0;
  SavedTensor kept_{this};

  const char* name() const override { return function_; }
  /// If backward is not recorded, one kernel computes a gradient of several ops. Otherwise ops do, in
  /// opmath(dtype). Either way the gradient of a 16-bit tensor is rounded once.
  Gradients backward(Gradients grads) override {
    const Tensor& g = *grads[0];
    if constexpr (is_step(op)) {
      return {detail::no_gradient(g)};
    } else if constexpr (keeps(op) == Keeps::nothing) {
      return {-g};
    } else {
      const Tensor kept = kept_.get();
      const DType wide = has_gradient(op) ? opmath(g.dtype()) : g.dtype();
      if (grad_enabled() || !has_gradient(op))
        return {detail::gradient_formula<op, Recorded>(g.to(wide), kept.to(wide), p_, q_).to(g.dtype())};
      Tensor grad_x = detail::empty_for(function_, g.shape(), g.options());
      detail::unary_gradient_kernel.on(g.device())(op, g, kept, grad_x, p_, q_);
      return {grad_x};
    }
  }
};

/// Checks, computes, and records.
template <Unary op>
Tensor unary(const char* function, const Tensor& x, Scalar p = 0, Scalar q = 0) {
  if (wants_f32(op) && detail::autocast_widens(x)) return unary<op>(function, x.to(f32), p, q);
  if (takes_integers(op))
    detail::check_arithmetic(function, "x", x);
  else
    detail::check_floating(function, "x", x);
  Tensor y = detail::empty_for(function, x.shape(), x.options());
  detail::unary_kernel.on(x.device())(op, x, y, p, q);
  if (auto node = record<UnaryNode<op>>({x}, y)) {
    node->function_ = function;
    node->p_ = p, node->q_ = q;
    if (keeps(op) != Keeps::nothing) node->kept_.save(keeps(op) == Keeps::output ? y : x);
  }
  return y;
}

/// floor, ceil or round. Integers are copied: they are whole already.
template <Unary op>
Tensor rounded(const char* function, const Tensor& x) {
  detail::check_arithmetic(function, "x", x);
  if (is_floating(x.dtype())) return unary<op>(function, x);
  return in_the_name_of(function, [&] { return x.clone(); });
}

/// Checks the bounds of clamp and hardtanh.
template <Unary op>
Tensor bounded(const char* function, const Tensor& x, Scalar min, Scalar max) {
  detail::check_defined(function, "x", x);
  detail::check_scalar(function, min, x.dtype());
  detail::check_scalar(function, max, x.dtype());
  check<ValueError>(min.as_real() <= max.as_real(), function, ": min must not exceed max, got ",
                    min.as_real(), " and ", max.as_real());
  return unary<op>(function, x, min, max);
}

}  // namespace

Tensor neg(const Tensor& x) { return unary<Unary::neg>("neg", x); }
Tensor abs(const Tensor& x) { return unary<Unary::abs>("abs", x); }
Tensor sign(const Tensor& x) { return unary<Unary::sign>("sign", x); }
Tensor floor(const Tensor& x) { return rounded<Unary::floor>("floor", x); }
Tensor ceil(const Tensor& x) { return rounded<Unary::ceil>("ceil", x); }
Tensor round(const Tensor& x) { return rounded<Unary::round>("round", x); }

Tensor clamp(const Tensor& x, Scalar min, Scalar max) { return bounded<Unary::clamp>("clamp", x, min, max); }

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
  return in_the_name_of("clamp", [&] {
    Tensor y = x;  // at a bound the gradient goes to x
    if (min.defined()) y = where(logical_or(lt(y, min), isnan(min)), min, y);
    if (max.defined()) y = where(logical_or(gt(y, max), isnan(max)), max, y);
    return y;
  });
}

// ---- Functions --------------------------------------------------------------------------------------------

Tensor exp(const Tensor& x) { return unary<Unary::exp>("exp", x); }
Tensor log(const Tensor& x) { return unary<Unary::log>("log", x); }
Tensor sqrt(const Tensor& x) { return unary<Unary::sqrt>("sqrt", x); }
Tensor rsqrt(const Tensor& x) { return unary<Unary::rsqrt>("rsqrt", x); }
Tensor sin(const Tensor& x) { return unary<Unary::sin>("sin", x); }
Tensor cos(const Tensor& x) { return unary<Unary::cos>("cos", x); }
Tensor log1p(const Tensor& x) { return unary<Unary::log1p>("log1p", x); }
Tensor expm1(const Tensor& x) { return unary<Unary::expm1>("expm1", x); }
Tensor erf(const Tensor& x) { return unary<Unary::erf>("erf", x); }

// ---- Activations ------------------------------------------------------------------------------------------

Tensor tanh(const Tensor& x) { return unary<Unary::tanh>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<Unary::sigmoid>("sigmoid", x); }
Tensor relu(const Tensor& x) { return unary<Unary::relu>("relu", x); }
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return unary<Unary::leaky_relu>("leaky_relu", x, negative_slope);
}
Tensor gelu(const Tensor& x) { return unary<Unary::gelu>("gelu", x); }
Tensor gelu_tanh(const Tensor& x) {
  detail::check_floating("gelu_tanh", "x", x);
  return in_the_name_of("gelu_tanh", [&] {
    const Tensor v = x.to(opmath(x.dtype()));  // (1 + tanh(u)) / 2 is sigmoid(2 u)
    return (v * sigmoid(v * (1 + 0.044715 * (v * v)) * std::sqrt(8 / std::numbers::pi))).to(x.dtype());
  });
}
Tensor silu(const Tensor& x) { return unary<Unary::silu>("silu", x); }
Tensor mish(const Tensor& x) { return unary<Unary::mish>("mish", x); }
Tensor elu(const Tensor& x, double alpha) { return unary<Unary::elu>("elu", x, alpha); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  return unary<Unary::softplus>("softplus", x, beta, threshold);
}
Tensor hardtanh(const Tensor& x, Scalar min, Scalar max) {
  return bounded<Unary::hardtanh>("hardtanh", x, min, max);
}
Tensor relu6(const Tensor& x) { return bounded<Unary::hardtanh>("relu6", x, 0, 6); }
Tensor hardsigmoid(const Tensor& x) { return unary<Unary::hardsigmoid>("hardsigmoid", x); }
Tensor hardswish(const Tensor& x) { return unary<Unary::hardswish>("hardswish", x); }

}  // namespace vox

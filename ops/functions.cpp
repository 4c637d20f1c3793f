#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/slope.h>
#include <voxgrad/ops/sum.h>
#include <voxgrad/ops/unary.h>

#include <cmath>
#include <limits>
#include <numbers>

// More ops of one operand.

namespace vox {

using namespace autograd;

namespace {

/// What a recorded gradient of these ops needs besides Recorded.
struct Functions : detail::Recorded {
  static Tensor sin(const Tensor& x) { return vox::sin(x); }
  static Tensor cos(const Tensor& x) { return vox::cos(x); }
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
Tensor apply(const char* function, const Tensor& x, Scalar p = 0, Scalar q = 0) {
  return detail::unary<op, Functions>(function, x, p, q);
}

/// floor, ceil or round. Integers are copied: they are whole already.
template <Unary op>
Tensor rounded(const char* function, const Tensor& x) {
  detail::check_arithmetic(function, "x", x);
  if (is_floating(x.dtype())) return apply<op>(function, x);
  return in_the_name_of(function, [&] { return x.clone(); });
}

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
template <Unary op>
Tensor bounded(const char* function, const Tensor& x, Scalar min, Scalar max) {
  detail::check_defined(function, "x", x);
  detail::check_scalar(function, min, x.dtype());
  detail::check_scalar(function, max, x.dtype());
  check<ValueError>(min.as_real() <= max.as_real(), function, ": min must not exceed max or be NaN, got ",
                    min.as_real(), " and ", max.as_real());
  return apply<op>(function, x, min, max);
}

}  // namespace

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

Tensor rsqrt(const Tensor& x) { return apply<Unary::rsqrt>("rsqrt", x); }
Tensor sin(const Tensor& x) { return apply<Unary::sin>("sin", x); }
Tensor cos(const Tensor& x) { return apply<Unary::cos>("cos", x); }
Tensor log1p(const Tensor& x) { return apply<Unary::log1p>("log1p", x); }
Tensor expm1(const Tensor& x) { return apply<Unary::expm1>("expm1", x); }
Tensor erf(const Tensor& x) { return apply<Unary::erf>("erf", x); }

// ---- Activations ------------------------------------------------------------------------------------------

Tensor leaky_relu(const Tensor& x, Real negative_slope) {
  return apply<Unary::leaky_relu>("leaky_relu", x, negative_slope);
}
Tensor gelu(const Tensor& x) { return apply<Unary::gelu>("gelu", x); }
Tensor gelu_tanh(const Tensor& x) {
  detail::check_floating("gelu_tanh", "x", x);
  const double twice = std::sqrt(8 / std::numbers::pi), cubic = 0.044715;
  // (1 + tanh(u)) / 2 is sigmoid(2 u).
  const auto gate = [=](const Tensor& v) { return sigmoid(v * (1 + cubic * (v * v)) * twice); };
  const auto slope = [=](const Tensor& v) {
    const Tensor s = gate(v);
    return s + v * s * (1 - s) * (1 + 3 * cubic * (v * v)) * twice;
  };
  return in_the_name_of("gelu_tanh", [&] {
    const auto f = [&](const Tensor& v) { return v * gate(v); };
    return detail::with_slope("gelu_tanh", x.to(opmath(x.dtype())), f, slope).to(x.dtype());
  });
}
Tensor silu(const Tensor& x) { return apply<Unary::silu>("silu", x); }
Tensor mish(const Tensor& x) { return apply<Unary::mish>("mish", x); }
Tensor elu(const Tensor& x, Real alpha) { return apply<Unary::elu>("elu", x, alpha); }
Tensor softplus(const Tensor& x, Real beta, Real threshold) {
  return apply<Unary::softplus>("softplus", x, beta, threshold);
}
Tensor hardtanh(const Tensor& x, Scalar min, Scalar max) {
  return bounded<Unary::hardtanh>("hardtanh", x, min, max);
}
Tensor relu6(const Tensor& x) { return bounded<Unary::hardtanh>("relu6", x, 0, 6); }
Tensor hardsigmoid(const Tensor& x) { return apply<Unary::hardsigmoid>("hardsigmoid", x); }
Tensor hardswish(const Tensor& x) { return apply<Unary::hardswish>("hardswish", x); }

}  // namespace vox

#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/reduce.h>

#include <limits>

// What is made of comparisons and where(): tests of elements, logic, and the larger or smaller of two.

namespace vox {

using namespace autograd;

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor truth(const char* function, const char* argument, const Tensor& x) {
  detail::check_defined(function, argument, x);
  return x.dtype() == boolean ? x : detail::compare(function, Comparison::ne, x, 0);
}
}  // namespace

Tensor isnan(const Tensor& x) { return detail::compare("isnan", Comparison::ne, x, x); }
Tensor isinf(const Tensor& x) {
  detail::check_defined("isinf", "x", x);
  return in_the_name_of("isinf",
                        [&] { return is_floating(x.dtype()) ? eq(abs(x.detach()), infinity) : ne(x, x); });
}
Tensor isfinite(const Tensor& x) {
  detail::check_defined("isfinite", "x", x);
  return in_the_name_of("isfinite",
                        [&] { return is_floating(x.dtype()) ? lt(abs(x.detach()), infinity) : eq(x, x); });
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  const Tensor p = truth("logical_and", "a", a), q = truth("logical_and", "b", b);
  return in_the_name_of("logical_and", [&] { return where(p, q, p); });
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  const Tensor p = truth("logical_or", "a", a), q = truth("logical_or", "b", b);
  return in_the_name_of("logical_or", [&] { return where(p, p, q); });
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return detail::compare("logical_xor", Comparison::ne, truth("logical_xor", "a", a),
                         truth("logical_xor", "b", b));
}
Tensor logical_not(const Tensor& x) {
  return detail::compare("logical_not", Comparison::eq, truth("logical_not", "x", x), 0);
}

bool equal(const Tensor& a, const Tensor& b) {
  detail::check_defined("equal", "a", a);
  detail::check_defined("equal", "b", b);
  detail::check_same_device("equal", a, b);
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return in_the_name_of("equal", [&] { return all(eq(a, b)).item<bool>(); });
}

bool allclose(const Tensor& a, const Tensor& b, Real rtol, Real atol, Flag equal_nan) {
  return in_the_name_of("allclose", [&] {
    const auto guard = no_grad();
    detail::check_arithmetic("allclose", "a", a);
    detail::check_arithmetic("allclose", "b", b);
    detail::check_same_dtype("allclose", a, b);
    check<ValueError>(rtol >= 0 && atol >= 0, "allclose: rtol and atol must be >= 0, got ", rtol, " and ",
                      atol);
    const Tensor x = a.to(f64), y = b.to(f64);
    // If y is infinite, so is the tolerance; then only an equal x is close.
    const Tensor near = logical_and(isfinite(y), le(abs(x - y), abs(y) * rtol + atol));
    Tensor close = logical_or(eq(x, y), near);
    if (equal_nan) close = logical_or(close, logical_and(isnan(x), isnan(y)));
    return all(close).item<bool>();
  });
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Element value) {
  return in_the_name_of("masked_fill", [&] { return where(mask, value, x); });
}

// ---- prelu: the products that are not chosen are 0, because the gradient of weight multiplies x by 0 there
// ----

Tensor prelu(const Tensor& x, const Tensor& weight) {
  detail::check_floating("prelu", "x", x);
  detail::check_defined("prelu", "weight", weight);
  const int64_t channels = x.rank() >= 2 ? x.size(1) : 1;
  check<ShapeError>(weight.rank() <= 1 && (weight.numel() == 1 || weight.numel() == channels),
                    "prelu: weight ", weight.shape(), " must have one number, or one for each of the ",
                    channels, " channels of x ", x.shape());
  return in_the_name_of("prelu", [&] {
    const Tensor in = detail::autocast_operand(x), w = detail::autocast_operand(weight);
    Shape along = Shape::filled(in.rank(), 1);
    if (weight.numel() != 1) along[1] = channels;
    const Tensor positive = gt(in.detach(), 0);
    return where(positive, in, w.reshape(along) * where(positive, 0, in));
  });
}

// ---- maximum, minimum: g goes to the operand that did not lose, half to each where they are equal ---------
// If either operand is NaN, both get g, so that the origin of a NaN can be found.

namespace {

template <bool largest>
struct ExtremumNode final : PairNode {
  const char* name() const override { return largest ? "maximum" : "minimum"; }
  Gradients backward(Gradients g) override {
    const Tensor a = saved_a_.get().detach(), b = saved_b_.get().detach();
    constexpr Binary op = largest ? Binary::maximum : Binary::minimum;
    Tensor tied, half, none;
    const auto share = [&](int operand, const Tensor& own, const Tensor& other) {
      if (const Tensor grad = detail::binary_gradient(name(), op, operand, *g[0], a, b); grad.defined())
        return grad;
      if (!tied.defined()) tied = eq(a, b), half = *g[0] * 0.5, none = full({}, 0, g[0]->options());
      return where(tied, half, where(largest ? lt(own, other) : gt(own, other), none, *g[0]));
    };
    return {if_needed(0, [&] { return sum_to(share(0, a, b), a.shape()); }),
            if_needed(1, [&] { return sum_to(share(1, b, a), b.shape()); })};
  }
};

template <bool largest>
Tensor extremum(const char* function, Binary op, const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return extremum<largest>(function, op, a.to(f32), b.to(f32));
  Tensor y = detail::binary(function, op, a, b);
  if (auto node = record<ExtremumNode<largest>>({a, b}, y)) node->save(a, b);
  return y;
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) { return extremum<true>("maximum", Binary::maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return extremum<false>("minimum", Binary::minimum, a, b); }
Tensor maximum(const Tensor& a, Scalar b) { return maximum(a, detail::number_like("maximum", a, b)); }
Tensor minimum(const Tensor& a, Scalar b) { return minimum(a, detail::number_like("minimum", a, b)); }

}  // namespace vox

#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/reduce.h>

#include <limits>

// Arithmetic of two operands. The gradient of an operand that was broadcast is summed to the operand's shape.

namespace vox {

using autograd::Gradients;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;

// ---- add ------------------------------------------------------------------------------------------------

namespace {
struct AddNode final : Node {
  const char* name() const override { return "add"; }
  Gradients backward(Gradients g) override {
    return {if_needed(0, [&] { return sum_to(*g[0], shape_a_); }),
            if_needed(1, [&] { return sum_to(*g[0], shape_b_); })};
  }
  Shape shape_a_, shape_b_;
};

struct AddNumberNode final : Node {
  const char* name() const override { return "add"; }
  Gradients backward(Gradients g) override { return {g[0]}; }
};
}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return add(a.to(f32), b.to(f32));
  Tensor y = detail::binary("add", Binary::add, a, b);
  if (auto node = record<AddNode>({a, b}, y)) {
    node->shape_a_ = a.shape();
    node->shape_b_ = b.shape();
  }
  return y;
}

Tensor add(const Tensor& a, Scalar b) {
  Tensor y = detail::binary("add", Binary::add, a, b);
  record<AddNumberNode>({a}, y);
  return y;
}

// ---- sub ------------------------------------------------------------------------------------------------

namespace {
struct SubNode final : Node {
  const char* name() const override { return "sub"; }
  Gradients backward(Gradients g) override {
    return {if_needed(0, [&] { return sum_to(*g[0], shape_a_); }),
            if_needed(1, [&] { return neg(sum_to(*g[0], shape_b_)); })};
  }
  Shape shape_a_, shape_b_;
};

struct NumberSubNode final : Node {
  const char* name() const override { return "sub"; }
  Gradients backward(Gradients g) override { return {neg(*g[0])}; }
};
}  // namespace

Tensor sub(const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return sub(a.to(f32), b.to(f32));
  Tensor y = detail::binary("sub", Binary::sub, a, b);
  if (auto node = record<SubNode>({a, b}, y)) {
    node->shape_a_ = a.shape();
    node->shape_b_ = b.shape();
  }
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

// ---- pow: y = a^b -----------------------------------------------------------------------------------------
// da = g b a^(b-1), and 0 where b = 0;  db = g y log(a), and 0 where a = 0 and b >= 0

namespace {

Tensor both(const Tensor& p, const Tensor& q) { return where(p, q, full_like(q, false)); }

double smallest_normal(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}

struct PowNode final : Node {
  SavedTensor saved_a_{this}, saved_b_{this}, saved_y_{this};
  const char* name() const override { return "pow"; }

  // Computed in opmath(dtype) and rounded once. At the special points, where() replaces the base by 1 before
  // the pole: masking the result instead leaves a 0 * inf in the second derivative. Where b = 0, the special
  // points are 0, NaN, and the denormal numbers, for which 1 / a may be infinite.
  Gradients backward(Gradients g) override {
    const Tensor a = saved_a_.get(), b = saved_b_.get(), y = saved_y_.get();
    return {if_needed(0,
                      [&] {
                        const Tensor fused = one_pass(0, *g[0], a, b, a);
                        return fused.defined() ? fused : base_gradient(*g[0], a, b);
                      }),
            if_needed(1, [&] {
              const Tensor fused = one_pass(1, *g[0], a, y, b);
              return fused.defined() ? fused : exponent_gradient(*g[0], a, b, y);
            })};
  }

 private:
  /// A gradient that was broadcast is not fused: it is rounded after its sum.
  static Tensor one_pass(int operand, const Tensor& g, const Tensor& a, const Tensor& last,
                         const Tensor& of) {
    if (of.shape() != g.shape()) return {};
    return detail::binary_gradient("pow", Binary::pow, operand, g, a, last);
  }
  static Tensor base_gradient(const Tensor& g, const Tensor& x, const Tensor& exponent) {
    const DType wide = opmath(g.dtype());
    const Tensor a = x.to(wide), b = exponent.to(wide), one = full({}, 1, a.options());
    const Tensor normal = ge(abs(a.detach()), smallest_normal(wide));
    const Tensor base = where(ne(b, 0), a, where(normal, a, one));
    return sum_to(g.to(wide) * (b * pow(base, b - 1)), a.shape()).to(g.dtype());
  }
  static Tensor exponent_gradient(const Tensor& g, const Tensor& x, const Tensor& exponent, const Tensor& y) {
    const DType wide = opmath(g.dtype());
    const Tensor a = x.to(wide), b = exponent.to(wide), one = full({}, 1, a.options());
    const Tensor base = where(both(eq(a, 0), ge(b, 0)), one, a);
    return sum_to(g.to(wide) * (y.to(wide) * log(base)), b.shape()).to(g.dtype());
  }
};

struct PowNumberNode final : Node {
  SavedTensor saved_a_{this};
  const char* name() const override { return "pow"; }
  Gradients backward(Gradients g) override {
    if (exponent_ == 0) return {detail::no_gradient(*g[0])};
    const DType dtype = g[0]->dtype(), wide = opmath(dtype);
    return {(g[0]->to(wide) * (pow(saved_a_.get().to(wide), exponent_ - 1) * exponent_)).to(dtype)};
  }
  double exponent_ = 0;
};

}  // namespace

Tensor pow(const Tensor& a, const Tensor& b) {
  if (detail::autocast_widens(a) || detail::autocast_widens(b)) return pow(a.to(f32), b.to(f32));
  detail::check_floating("pow", "a", a);
  Tensor y = detail::binary("pow", Binary::pow, a, b);
  if (auto node = record<PowNode>({a, b}, y)) {
    node->saved_a_.save(a);
    node->saved_b_.save(b);
    node->saved_y_.save(y);
  }
  return y;
}

Tensor pow(const Tensor& a, Scalar exponent) {
  if (detail::autocast_widens(a)) return pow(a.to(f32), exponent);
  detail::check_floating("pow", "a", a);
  Tensor y = detail::binary("pow", Binary::pow, a, exponent);
  if (auto node = record<PowNumberNode>({a}, y)) {
    node->saved_a_.save(a);
    node->exponent_ = exponent.as_real();
  }
  return y;
}

Tensor pow(Scalar a, const Tensor& exponent) {
  detail::check_floating("pow", "exponent", exponent);
  return in_the_name_of("pow", [&] {
    const Tensor b = exponent.to(opmath(exponent.dtype()));
    return pow(full({}, a, b.options()), b).to(exponent.dtype());
  });
}

}  // namespace vox

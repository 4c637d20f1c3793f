#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/reduce.h>

#include <limits>

// pow: y = a^b, with the gradients
// da = g b a^(b-1), and 0 where b = 0;  db = g y log(a), and 0 where a = 0 and b >= 0

namespace vox {

using namespace autograd;

namespace {

double smallest_normal(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}

struct PowNode final : PairNode {
  SavedTensor saved_y_{this};
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
    const Tensor a = x.to(wide), b = exponent.to(wide);
    const Tensor normal = ge(abs(a.detach()), smallest_normal(wide));
    const Tensor base = where(ne(b, 0), a, where(normal, a, 1));
    return sum_to(g.to(wide) * (b * pow(base, b - 1)), a.shape()).to(g.dtype());
  }
  static Tensor exponent_gradient(const Tensor& g, const Tensor& x, const Tensor& exponent, const Tensor& y) {
    const DType wide = opmath(g.dtype());
    const Tensor a = x.to(wide), b = exponent.to(wide);
    const Tensor base = where(logical_and(eq(a, 0), ge(b, 0)), 1, a);
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
    node->save(a, b);
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

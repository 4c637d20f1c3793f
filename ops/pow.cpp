#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/reduce.h>

#include <limits>

// y = a^b.  da = g b a^(b-1), and 0 where b = 0;  db = g y log(a), and 0 where a = 0 and b >= 0.

namespace vox {

using autograd::Gradients;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;

namespace {

Tensor both(const Tensor& p, const Tensor& q) { return where(p, q, full_like(q, false)); }

double smallest_normal(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
}

struct PowNode final : Node {
  SavedTensor saved_a_{this}, saved_b_{this}, saved_y_{this};
  const char* name() const override { return "pow"; }

  // In the dtype that ops compute in, and rounded once.
  // At the special points the base is replaced by 1, before the pole: masking the result would leave a
  // 0 * inf for whoever differentiates this again. Where b = 0 these are 0, NaN, and the denormal numbers,
  // for which 1 / a may be infinite.
  Gradients backward(Gradients g) override {
    const DType dtype = g[0]->dtype(), wide = opmath(dtype);
    const Tensor a = saved_a_.get().to(wide), b = saved_b_.get().to(wide), y = saved_y_.get().to(wide);
    const Tensor grad = g[0]->to(wide);
    const Tensor one = full({}, 1, a.options());
    return {if_needed(0,
                      [&] {
                        const Tensor normal = ge(abs(a.detach()), smallest_normal(wide));
                        const Tensor base = where(ne(b, 0), a, where(normal, a, one));
                        return sum_to(grad * (b * pow(base, b - 1)), a.shape()).to(dtype);
                      }),
            if_needed(1, [&] {
              const Tensor base = where(both(eq(a, 0), ge(b, 0)), one, a);
              return sum_to(grad * (y * log(base)), b.shape()).to(dtype);
            })};
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
  detail::check_floating("pow", "a", a);
  Tensor y = detail::binary("pow", Binary::pow, a, exponent);
  if (auto node = record<PowNumberNode>({a}, y)) {
    node->saved_a_.save(a);
    node->exponent_ = exponent.as_real();
  }
  return y;
}

}  // namespace vox

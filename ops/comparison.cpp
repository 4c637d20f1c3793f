#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/core/new_tensor.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/sum.h>

// Comparisons, and where(), which chooses by their results. Its gradients use where() too. They never
// multiply by 0 or 1, because 0 * inf is NaN.

namespace vox {

using namespace autograd;

Tensor eq(const Tensor& a, const Tensor& b) { return detail::compare("eq", Comparison::eq, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return detail::compare("ne", Comparison::ne, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return detail::compare("lt", Comparison::lt, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return detail::compare("le", Comparison::le, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return detail::compare("gt", Comparison::gt, a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return detail::compare("ge", Comparison::ge, a, b); }
Tensor eq(const Tensor& a, Element b) { return detail::compare("eq", Comparison::eq, a, b); }
Tensor ne(const Tensor& a, Element b) { return detail::compare("ne", Comparison::ne, a, b); }
Tensor lt(const Tensor& a, Scalar b) { return detail::compare("lt", Comparison::lt, a, b); }
Tensor le(const Tensor& a, Scalar b) { return detail::compare("le", Comparison::le, a, b); }
Tensor gt(const Tensor& a, Scalar b) { return detail::compare("gt", Comparison::gt, a, b); }
Tensor ge(const Tensor& a, Scalar b) { return detail::compare("ge", Comparison::ge, a, b); }

// ---- where: da = where(condition, g, 0), db = where(condition, 0, g) -------------------------------------

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (detail::autocast_mixes(a, b)) return where(condition, a.to(f32), b.to(f32));
  detail::check_defined("where", "condition", condition);
  detail::check_defined("where", "a", a);
  detail::check_defined("where", "b", b);
  check<DTypeError>(condition.dtype() == boolean, "where: the condition must be bool, got ",
                    condition.dtype());
  detail::check_same_dtype("where", a, b);
  detail::check_same_device("where", a, b);
  detail::check_same_device("where", condition, a);
  const Shape shape =
      broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  Tensor y = detail::empty_for("where", shape, a.options());
  const Tensor chosen = detail::broadcast_to("where", condition, shape);
  detail::where_kernel.on(y.device())(chosen, detail::broadcast_to("where", a, shape),
                                      detail::broadcast_to("where", b, shape), y);
  return linear_keeping(
      chosen, "where", {a, b}, y,
      [shape = a.shape()](const Tensor& g, const Tensor& c) { return sum_to(detail::where(c, g, 0), shape); },
      [shape = b.shape()](const Tensor& g, const Tensor& c) { return sum_to(where(c, 0, g), shape); });
}

Tensor detail::number_like(const char* function, const Tensor& x, Scalar value) {
  check_defined(function, "x", x);
  check_scalar(function, value, x.dtype());
  return in_the_name_of(function, [&] { return full({}, value, x.options()); });
}

Tensor where(const Tensor& condition, const Tensor& a, Element b) {
  return where(condition, a, detail::number_like("where", a, b));
}
Tensor where(const Tensor& condition, Element a, const Tensor& b) {
  return where(condition, detail::number_like("where", b, a), b);
}
Tensor detail::where(const Tensor& condition, const Tensor& a, Scalar value) {
  Tensor y = empty_for("where", a.shape(), a.options());
  where_kernel.on(y.device())(condition, a, number("where", value, a.dtype(), a.shape()), y);
  return linear_keeping(condition, "where", {a}, y,
                        [](const Tensor& g, const Tensor& c) { return detail::where(c, g, 0); });
}

Tensor detail::no_gradient(const Tensor& g) {
  return detail::where(full(g.shape(), false, {boolean, g.device()}), g, 0);
}

}  // namespace vox

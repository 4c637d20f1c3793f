#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/reduce_plan.h>
#include <voxgrad/ops/sum.h>

#include <algorithm>

// Sums and means, and sum_to, the adjoint of broadcasting. Each gradient is expanded to x's shape:
//   sum    g
//   mean   g / count

namespace vox {

namespace {

Tensor sum_as(const char* function, const Tensor& x, const Shape& dims, bool keepdim) {
  const detail::ReducePlan plan = detail::reduce_plan(function, x, dims, keepdim);
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : i64;
  return autograd::linear("sum", {x}, detail::reduced(function, ReduceKind::sum, x, plan, dtype),
                          [kept = plan.keepdim_shape, shape = x.shape()](const Tensor& g) {
                            return g.reshape(kept).expand(shape);
                          });
}

}  // namespace

Tensor sum(const Tensor& x, const Shape& dims, Flag keepdim) {
  if (x.defined() && is_only_stored(x.dtype())) return sum_as("sum", x.to(i64), dims, keepdim);
  return sum_as("sum", detail::autocast_widens(x) ? x.to(f32) : x, dims, keepdim);
}

Tensor mean(const Tensor& x, const Shape& dims, Flag keepdim) {
  const detail::ReducePlan plan = detail::reduce_plan("mean", x, dims, keepdim);
  detail::check_floating("mean", "x", x);
  const int64_t count = std::max<int64_t>(plan.count, 1);  // an empty tensor has no gradient 0 / 0
  return autograd::linear("mean", {x}, detail::reduced("mean", ReduceKind::mean, x, plan, x.dtype()),
                          [kept = plan.keepdim_shape, shape = x.shape(), count](const Tensor& g) {
                            return div(g, Scalar(count)).reshape(kept).expand(shape);
                          });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  detail::check_defined("sum_to", "x", x);
  if (x.shape() == shape) return x;
  const int64_t extra = x.rank() - shape.rank();
  check<ShapeError>(extra >= 0, "sum_to: shape ", shape, " has more dimensions than x, ", x.shape());
  Shape dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const int64_t size = x.shape()[i], wanted = i < extra ? 1 : shape[i - extra];
    check<ShapeError>(wanted == size || wanted == 1, "sum_to: shape ", shape, " does not broadcast to ",
                      x.shape(), ": sizes ", wanted, " and ", size, " differ and the first is not 1");
    if (wanted != size || i < extra) dims.push_back(i);
  }
  return sum_as("sum_to", x, dims, true).reshape(shape);
}

Tensor Tensor::sum(const Shape& dims, Flag keepdim) const { return vox::sum(*this, dims, keepdim); }
Tensor Tensor::mean(const Shape& dims, Flag keepdim) const { return vox::mean(*this, dims, keepdim); }

}  // namespace vox

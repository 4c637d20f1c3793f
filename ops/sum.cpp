#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/reduce_plan.h>
#include <voxgrad/ops/sum.h>

#include <algorithm>

// Sums and means, and sum_to, the adjoint of broadcasting. Each gradient is expanded to x's shape:
//   sum    g
//   mean   g / count

namespace vox {

namespace {

struct SumNode : autograd::Node {
  const char* name() const override { return "sum"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    return {g[0]->reshape(keepdim_shape_).expand(shape_)};
  }
  Shape shape_, keepdim_shape_;
};

struct MeanNode : SumNode {
  const char* name() const override { return "mean"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    return SumNode::backward({div(*g[0], Scalar(count_))});
  }
  int64_t count_ = 1;
};

Tensor sum_as(const char* function, const Tensor& x, const Shape& dims, bool keepdim) {
  const detail::ReducePlan plan = detail::reduce_plan(function, x, dims, keepdim);
  Tensor y = detail::reduced(function, ReduceKind::sum, x, plan, is_floating(x.dtype()) ? x.dtype() : i64);
  if (auto node = autograd::record<SumNode>({x}, y)) {
    node->shape_ = x.shape();
    node->keepdim_shape_ = plan.keepdim_shape;
  }
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, const Shape& dims, Flag keepdim) {
  return sum_as("sum", detail::autocast_widens(x) ? x.to(f32) : x, dims, keepdim);
}

Tensor mean(const Tensor& x, const Shape& dims, Flag keepdim) {
  const detail::ReducePlan plan = detail::reduce_plan("mean", x, dims, keepdim);
  detail::check_floating("mean", "x", x);
  Tensor y = detail::reduced("mean", ReduceKind::mean, x, plan, x.dtype());
  if (auto node = autograd::record<MeanNode>({x}, y)) {
    node->shape_ = x.shape();
    node->keepdim_shape_ = plan.keepdim_shape;
    // At least 1, so that the gradient of an empty tensor is not 0 / 0.
    node->count_ = std::max<int64_t>(plan.count, 1);
  }
  return y;
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

#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/difference.h>

#include <algorithm>

namespace vox::detail {

Tensor DifferenceNode::scale(const Tensor& g) const {
  const Tensor scale = g.to(opmath(g.dtype())).reshape(keepdim_shape_);
  return factor_ == 1 ? scale : scale * factor_;
}

autograd::Gradients DifferenceNode::backward(autograd::Gradients g) {
  const Tensor x = saved_x_.get(), target = saved_target_.get(), factor = scale(*g[0]);
  Tensor grad_x;
  if (!grad_enabled()) {
    grad_x = reduce_gradient(name_, is_sign_ ? ReduceGradient::sign : ReduceGradient::difference,
                             keepdim_shape_, factor, x, target);
  } else {
    Tensor d = x.to(factor.dtype());
    if (target.defined()) d = d - target.to(factor.dtype());
    grad_x = ((is_sign_ ? sign(d) : d) * factor).to(x.dtype());
  }
  if (!target.defined()) return {grad_x};
  return {grad_x, if_needed(1, [&] { return neg(grad_x); })};
}

Tensor reduced_difference(const char* function, ReduceKind kind, const Tensor& x, const Tensor& target,
                          const ReducePlan& plan, DType dtype) {
  Tensor y, wide;  // one of them is the result
  (dtype == x.dtype() ? y : wide) = empty_for(function, plan.shape, {dtype, x.device()});
  const bool same = !target.defined() || x.strides() == target.strides();
  call_reduce(function, kind, same ? x : x.contiguous(), same ? target : target.contiguous(), plan, y, wide);
  const Tensor result = y.defined() ? y : wide;
  const std::vector<Tensor> inputs = target.defined() ? std::vector{x, target} : std::vector{x};
  if (auto node = autograd::record<DifferenceNode>(inputs, std::span(&result, 1), function)) {
    const bool is_mean = kind == ReduceKind::mean_magnitude || kind == ReduceKind::mean_square;
    node->keepdim_shape_ = plan.keepdim_shape;
    node->is_sign_ = kind == ReduceKind::sum_of_magnitudes || kind == ReduceKind::mean_magnitude;
    node->factor_ = (node->is_sign_ ? 1.0 : 2.0) /
                    (is_mean ? static_cast<double>(std::max<int64_t>(plan.count, 1)) : 1.0);
    node->saved_x_.save(x);
    node->saved_target_.save(target);
  }
  return result;
}

}  // namespace vox::detail

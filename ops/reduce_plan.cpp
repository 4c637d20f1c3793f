#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/reduce_plan.h>

#include <array>

namespace vox::detail {

void check_reducible(const char* function, const Tensor& x) {
  constexpr int64_t address_space = int64_t{1} << 47, widest_result = 16;
  constexpr int64_t most = address_space / widest_result * reduce_block_size;
  static_assert(most == int64_t{1} << 53);
  check<ShapeError>(x.numel() <= most, function, ": at most 2^53 elements can be reduced, got shape ",
                    x.shape());
}

ReducePlan reduce_plan(const char* function, const Tensor& x, const Shape& dims, bool keepdim) {
  check_defined(function, "x", x);
  check_reducible(function, x);
  const int64_t rank = x.rank();
  std::array<bool, max_rank> reduced{};
  for (int64_t dim : dims) {
    bool& seen = reduced[static_cast<size_t>(normalize_dim_or_0(function, dim, rank))];
    check<ShapeError>(!seen, function, ": dim ", dim, " occurs twice in dims ", dims, " of a tensor of rank ",
                      rank, "; each may be named once");
    seen = true;
  }
  if (dims.empty()) reduced.fill(true);

  ReducePlan plan;
  for (int64_t i = 0; i < rank; ++i) {
    const bool reduce = reduced[static_cast<size_t>(i)];
    plan.keepdim_shape.push_back(reduce ? 1 : x.shape()[i]);
    if (!reduce) plan.order.push_back(i);
    if (!reduce || keepdim) plan.shape.push_back(reduce ? 1 : x.shape()[i]);
  }
  for (int64_t i = 0; i < rank; ++i) {
    if (!reduced[static_cast<size_t>(i)]) continue;
    plan.order.push_back(i);
    plan.count *= x.shape()[i];
    ++plan.reduced;
  }
  return plan;
}

Tensor in_order(const Tensor& x, const Shape& order) {
  Shape shape, strides;
  for (const int64_t d : order) shape.push_back(x.shape()[d]), strides.push_back(x.strides()[d]);
  return alias(x, x.impl()->offset, shape, strides);
}

void call_reduce(const char* function, ReduceKind kind, const Tensor& x, const Tensor& target,
                 const ReducePlan& plan, Tensor& y, Tensor& extra) {
  constexpr ByDevice kernel{"reduce", in_f32<&cpu::reduce>, VOX_CUDA(&cuda::reduce)};
  kernel.on(x.device(), function)(kind, in_order(x, plan.order),
                                  target.defined() ? in_order(target, plan.order) : target, plan.reduced, y,
                                  extra);
}

Tensor reduced(const char* function, ReduceKind kind, const Tensor& x, const ReducePlan& plan, DType dtype,
               Tensor extra) {
  Tensor y = empty_for(function, plan.shape, {dtype, x.device()});
  call_reduce(function, kind, x, {}, plan, y, extra);
  return y;
}

Tensor reduce_gradient(const char* function, ReduceGradient kind, const Shape& keepdim_shape, const Tensor& g,
                       const Tensor& x, const Tensor& r, const Tensor& b) {
  const auto spread = [&](const Tensor& t) {
    return t.defined() ? broadcast_to(function, t.reshape(keepdim_shape), x.shape()) : t;
  };
  constexpr ByDevice kernel{"reduce_gradient", in_f32<&cpu::reduce_gradient>,
                            VOX_CUDA(&cuda::reduce_gradient)};
  Tensor grad_x = empty_for(function, x.shape(), x.options());
  const Tensor other = !r.defined()             ? number(function, 0, x.dtype(), x.shape())
                       : r.shape() == x.shape() ? r.detach()
                                                : spread(r);
  kernel.on(x.device(), function)(kind, spread(g.to(opmath(x.dtype()))), x.detach(), other, spread(b),
                                  grad_x);
  return grad_x;
}

}  // namespace vox::detail

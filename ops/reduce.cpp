#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/reduce_ops.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

// Gradients, with y = op(x) and g the gradient of y, expanded to x's shape:
//   sum        g
//   mean       g / count
//   var        g * 2 (x - mean) / (count - correction)
//   logsumexp  g * exp(x - y)
//   max, min   g / (number of ties) where x == y, else 0
//   norm, and the sum or mean of magnitudes or squares: see DifferenceNode
//   sum_to, std and prod are composed of other ops
// Each is one kernel. Where the backward is recorded, it is composed of recorded ops instead.

namespace vox {

namespace {

constexpr ByDevice reduce_kernel{"reduce", in_f32<&cpu::reduce>, VOX_CUDA(&cuda::reduce)};
constexpr ByDevice reduce_gradient_kernel{"reduce_gradient", in_f32<&cpu::reduce_gradient>,
                                          VOX_CUDA(&cuda::reduce_gradient)};
constexpr ByDevice var_mean_kernel{"var_mean", &cpu::var_mean, VOX_CUDA(&cuda::var_mean)};

/// What `dims` and `keepdim` of one call mean for x.
struct Plan {
  Shape order;          // kept dimensions, then reduced ones, each in their old order
  Shape keepdim_shape;  // x's shape with 1 for reduced dimensions
  Shape shape;          // of the result
  int64_t reduced = 0;  // number of reduced dimensions
  int64_t count = 1;    // elements per result
};

Plan plan_of(const char* function, const Tensor& x, const Shape& dims, bool keepdim) {
  detail::check_defined(function, "x", x);
  detail::check_reducible(function, x);
  const int64_t rank = x.rank();
  std::array<bool, max_rank> reduced{};
  for (int64_t dim : dims) {
    bool& seen = reduced[static_cast<size_t>(normalize_dim_or_0(function, dim, rank))];
    check<ShapeError>(!seen, function, ": dim ", dim, " occurs twice in dims ", dims, " of a tensor of rank ",
                      rank, "; each may be named once");
    seen = true;
  }
  if (dims.empty()) reduced.fill(true);

  Plan plan;
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

/// x, off the tape, with its dimensions in the plan's order.
Tensor in_order(const Tensor& x, const Plan& plan) {
  Shape shape, strides;
  for (int64_t i : plan.order) {
    shape.push_back(x.shape()[i]);
    strides.push_back(x.strides()[i]);
  }
  return detail::alias(x, x.impl()->offset, shape, strides);
}

Tensor run(const char* function, ReduceKind kind, const Tensor& x, const Plan& plan, DType dtype,
           Tensor extra = {}) {
  Tensor y = detail::empty_for(function, plan.shape, {dtype, x.device()});
  reduce_kernel.on(x.device(), function)(kind, in_order(x, plan), Tensor(), plan.reduced, y, extra);
  return y;
}

/// What a node keeps of results in opmath besides their rounded ones: nothing for f32 and f64.
Tensor exact_results(const char* function, const Tensor& x, const Plan& plan) {
  if (!autograd::is_recorded(x) || !is_16_bit(x.dtype())) return {};
  return detail::empty_for(function, plan.shape, {opmath(x.dtype()), x.device()});
}

/// Dimensions whose reduction gives `keepdim_shape`: those of size 1.
Shape reduced_dims(const Shape& keepdim_shape) {
  Shape dims;
  for (int64_t i = 0; i < keepdim_shape.rank(); ++i)
    if (keepdim_shape[i] == 1) dims.push_back(i);
  return dims;
}

/// The gradient of x, off the tape. g, r and b have the shape of the results, and keepdim_shape makes that
/// broadcast; r may have x's shape, or be undefined, which means 0.
Tensor gradient(const char* function, ReduceGradient kind, const Shape& keepdim_shape, const Tensor& g,
                const Tensor& x, const Tensor& r, const Tensor& b = {}) {
  const auto spread = [&](const Tensor& t) {
    return t.defined() ? detail::broadcast_to(function, t.reshape(keepdim_shape), x.shape()) : t;
  };
  Tensor grad_x = detail::empty_for(function, x.shape(), x.options());
  const Tensor other = !r.defined()             ? detail::number(function, 0, x.dtype(), x.shape())
                       : r.shape() == x.shape() ? r.detach()
                                                : spread(r);
  reduce_gradient_kernel.on(x.device(), function)(kind, spread(g.to(opmath(x.dtype()))), x.detach(), other,
                                                  spread(b), grad_x);
  return grad_x;
}

// ---- sum, mean ------------------------------------------------------------------------------------------

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
  const Plan plan = plan_of(function, x, dims, keepdim);
  Tensor y = run(function, ReduceKind::sum, x, plan, is_floating(x.dtype()) ? x.dtype() : i64);
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
  const Plan plan = plan_of("mean", x, dims, keepdim);
  detail::check_floating("mean", "x", x);
  Tensor y = run("mean", ReduceKind::mean, x, plan, x.dtype());
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

// ---- max, min, argmax, argmin ---------------------------------------------------------------------------

namespace {

struct ExtremumNode : autograd::Node {
  const char* name() const override { return name_; }
  autograd::Gradients backward(autograd::Gradients g) override {
    if (const Tensor indices = saved_indices_.get(); indices.defined())
      return {where(eq(positions(indices.device()), indices.reshape(keepdim_shape_)),
                    g[0]->reshape(keepdim_shape_), 0)};
    if (!grad_enabled()) {
      const Tensor share = div(g[0]->to(saved_ties_.get().dtype()), saved_ties_.get());
      return {gradient(name_, ReduceGradient::winner, keepdim_shape_, share, saved_x_.get(), saved_y_.get())};
    }
    const Tensor x = saved_x_.get().detach(), y = saved_y_.get().detach().reshape(keepdim_shape_);
    const Tensor winners = where(ne(y, y), ne(x, x), eq(x, y));  // NaN is unequal to itself
    const DType wide = opmath(x.dtype());
    const Tensor ties = saved_ties_.get().reshape(keepdim_shape_);
    const Tensor share = div(g[0]->reshape(keepdim_shape_).to(wide), ties).to(x.dtype());
    return {where(winners, share, full({}, 0, x.options()))};
  }
  /// 0, 1, ... along the one reduced dimension.
  Tensor positions(Device device) const {
    if (shape_.empty()) return zeros({}, {i64, device});
    const int64_t dim = normalize_dim(name_, dims_[0], shape_.rank());
    Shape along = Shape::filled(shape_.rank(), 1);
    along[dim] = shape_[dim];
    return arange(shape_[dim], {i64, device}).reshape(along);
  }
  const char* name_ = "";
  Shape shape_, keepdim_shape_, dims_;
  autograd::SavedTensor saved_x_{this}, saved_y_{this}, saved_ties_{this};
  autograd::SavedTensor saved_indices_{this};  // instead, in max(x, dim): the first extremum gets all of g
};

Plan extremum_plan(const char* function, const Tensor& x, const Shape& dims, bool keepdim) {
  Plan plan = plan_of(function, x, dims, keepdim);
  check<ShapeError>(plan.count > 0, function, ": there is no element to choose from: dims ", dims,
                    " of shape ", x.shape(), " hold none; every reduced size must be > 0");
  return plan;
}

Tensor extremum(ReduceKind kind, const char* function, const Tensor& x, const Shape& dims, bool keepdim,
                const Tensor& indices = {}) {
  const Plan plan = extremum_plan(function, x, dims, keepdim);
  Tensor ties;  // bf16 cannot count beyond 256
  if (is_floating(x.dtype()) && autograd::is_recorded(x) && !indices.defined())
    ties = detail::empty_for(function, plan.shape, {opmath(x.dtype()), x.device()});
  Tensor y = run(function, kind, x, plan, x.dtype(), ties);
  if (auto node = autograd::record<ExtremumNode>({x}, y)) {
    node->name_ = function;
    node->keepdim_shape_ = plan.keepdim_shape;
    node->shape_ = x.shape();
    node->dims_ = dims;
    node->saved_indices_.save(indices);
    if (indices.defined()) return y;
    node->saved_x_.save(x);
    node->saved_y_.save(y);
    node->saved_ties_.save(ties);
  }
  return y;
}

Tensor arg_extremum(ReduceKind kind, const char* function, const Tensor& x, const Shape& dims, bool keepdim) {
  return run(function, kind, x, extremum_plan(function, x, dims, keepdim), i64);
}

}  // namespace

Tensor max(const Tensor& x, const Shape& dims, Flag keepdim) {
  return extremum(ReduceKind::max, "max", x, dims, keepdim);
}
Tensor min(const Tensor& x, const Shape& dims, Flag keepdim) {
  return extremum(ReduceKind::min, "min", x, dims, keepdim);
}
Tensor argmax(const Tensor& x, const Shape& dims, Flag keepdim) {
  return arg_extremum(ReduceKind::argmax, "argmax", x, dims, keepdim);
}
Tensor argmin(const Tensor& x, const Shape& dims, Flag keepdim) {
  return arg_extremum(ReduceKind::argmin, "argmin", x, dims, keepdim);
}

ValuesAndIndices detail::extremum_along(bool largest, const Tensor& x, int64_t dim, bool keepdim) {
  const char* const name = largest ? "max" : "min";
  const Tensor indices =
      arg_extremum(largest ? ReduceKind::argmax : ReduceKind::argmin, name, x, dim, keepdim);
  return {extremum(largest ? ReduceKind::max : ReduceKind::min, name, x, dim, keepdim, indices), indices};
}

// ---- prod, any, all -------------------------------------------------------------------------------------

Tensor prod(const Tensor& x, const Shape& dims, Flag keepdim) {
  const Plan plan = plan_of("prod", x, dims, keepdim);
  return in_the_name_of("prod", [&] {
    Shape rows =
        Shape::filled(x.rank() - plan.reduced, 1);  // of the kept dimensions, then one of all reduced ones
    for (int64_t i = 0; i < rows.rank(); ++i) rows[i] = x.shape()[plan.order[i]];
    rows.push_back(plan.count);
    const bool real = is_floating(x.dtype());
    Tensor y = x.to(real ? opmath(x.dtype()) : i64).permute(plan.order).reshape(rows);
    const int64_t last = rows.rank() - 1;
    if (plan.count == 0) y = y.sum(last, true) + 1;
    while (y.shape()[last] > 1) {
      const int64_t n = y.shape()[last], half = n / 2;
      const Tensor pairs = y.slice(last, 0, half) * y.slice(last, half, 2 * half);
      y = n % 2 == 0 ? pairs : cat({pairs, y.slice(last, n - 1, n)}, last);
    }
    return y.reshape(plan.shape).to(real ? x.dtype() : i64);
  });
}

Tensor any(const Tensor& x, const Shape& dims, Flag keepdim) {
  const Plan plan = plan_of("any", x, dims, keepdim);
  return in_the_name_of("any",
                        [&] { return ne(run("any", ReduceKind::sum, logical_or(x, x), plan, i64), 0); });
}

Tensor all(const Tensor& x, const Shape& dims, Flag keepdim) {
  const Plan plan = plan_of("all", x, dims, keepdim);
  return in_the_name_of("all", [&] { return eq(run("all", ReduceKind::sum, logical_not(x), plan, i64), 0); });
}

// ---- var, std, norm, logsumexp --------------------------------------------------------------------------

namespace {

struct VarMeanNode final : autograd::Node {
  const char* name() const override { return "var_mean"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor x = saved_x_.get();
    const DType wide = opmath(x.dtype());
    if (!grad_enabled() && g[0])
      return {gradient(name(), ReduceGradient::difference, keepdim_shape_, g[0]->to(wide) * (2 / divisor_), x,
                       saved_mean_.get(),
                       g[1] ? g[1]->to(wide) / count_ : zeros(keepdim_shape_, {wide, x.device()}))};
    const auto of_elements = [&](const Tensor& t) {
      return t.to(wide).reshape(keepdim_shape_).expand(x.shape());
    };
    Tensor grad_x;
    if (g[0]) {
      const Tensor elements = x.to(wide);
      const Tensor slope = (elements - mean(elements, dims_, true)) * (2 / divisor_);
      grad_x = of_elements(*g[0]) * slope;
    }
    if (g[1]) {
      const Tensor by_mean = of_elements(*g[1]) / count_;
      grad_x = g[0] ? grad_x + by_mean : by_mean;
    }
    return {grad_x.to(x.dtype())};
  }
  Shape keepdim_shape_, dims_;
  double count_ = 1, divisor_ = 1;
  autograd::SavedTensor saved_x_{this}, saved_mean_{this};
};

VarMean var_mean_as(const char* function, const Tensor& x, const Shape& dims, double correction,
                    bool keepdim) {
  const Plan plan = plan_of(function, x, dims, keepdim);
  detail::check_floating(function, "x", x);
  check<ValueError>(std::isfinite(correction), function, ": correction must be finite, got ", correction);
  VarMean y{detail::empty_for(function, plan.shape, x.options()),
            detail::empty_for(function, plan.shape, x.options())};
  Tensor exact_mean = exact_results(function, x, plan);
  var_mean_kernel.on(x.device(), function)(in_order(x, plan), plan.reduced, correction, y.var, y.mean,
                                           exact_mean);
  const Tensor outputs[] = {y.var, y.mean};
  if (auto node = autograd::record<VarMeanNode>(std::span(&x, 1), outputs)) {
    node->keepdim_shape_ = plan.keepdim_shape;
    node->dims_ = dims;
    node->count_ = static_cast<double>(plan.count);
    node->divisor_ = std::max(0.0, node->count_ - correction);
    node->saved_x_.save(x);
    node->saved_mean_.save(exact_mean.defined() ? exact_mean : y.mean.detach().clone());
  }
  return y;
}

/// With d = x - target, or x alone: the gradient of sum |d| is g * sign(d), of sum d^2 it is g * 2 d, and of
/// its square root y it is g * d / y, or 0 where y is 0. A mean divides them by the count.
struct DifferenceNode final : autograd::Node {
  const char* name() const override { return name_; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor x = saved_x_.get(), target = saved_target_.get();
    const DType wide = opmath(x.dtype());
    Tensor y = saved_y_.get();
    if (saved_exact_.get().defined())  // a recorded gradient needs y on the tape
      y = grad_enabled() ? norm(x.to(wide), 2, reduced_dims(keepdim_shape_), true) : saved_exact_.get();
    Tensor scale = g[0]->to(wide).reshape(keepdim_shape_);
    if (y.defined()) {
      const Tensor kept = y.to(wide).reshape(keepdim_shape_), nothing = eq(kept, 0);
      const auto number = [&](double value) { return full({}, value, kept.options()); };
      scale = where(nothing, number(0), scale / where(nothing, number(1), kept));
    }
    if (factor_ != 1) scale = scale * factor_;
    Tensor grad_x;
    if (!grad_enabled()) {
      grad_x = gradient(name_, is_sign_ ? ReduceGradient::sign : ReduceGradient::difference, keepdim_shape_,
                        scale, x, target);
    } else {
      Tensor d = x.to(wide);
      if (target.defined()) d = d - target.to(wide);
      grad_x = ((is_sign_ ? sign(d) : d) * scale).to(x.dtype());
    }
    if (!target.defined()) return {grad_x};
    return {grad_x, needs_grad(1) ? std::optional(neg(grad_x)) : std::nullopt};
  }
  const char* name_ = "";
  Shape keepdim_shape_;
  bool is_sign_ = false;
  double factor_ = 1;
  autograd::SavedTensor saved_x_{this}, saved_target_{this};
  autograd::SavedTensor saved_y_{this}, saved_exact_{this};  // of a norm
};

/// One of the kinds from sum_of_magnitudes to norm, of x - target if that is defined, in x's dtype or its
/// opmath.
Tensor difference(const char* function, ReduceKind kind, const Tensor& x, const Tensor& target,
                  const Plan& plan, DType dtype) {
  const DType wide = opmath(x.dtype());
  const bool is_norm = kind == ReduceKind::norm;
  Tensor y, exact;
  if (dtype == x.dtype()) y = detail::empty_for(function, plan.shape, {dtype, x.device()});
  if (dtype != x.dtype() || (is_norm && autograd::is_recorded(x) && dtype != wide))
    exact = detail::empty_for(function, plan.shape, {wide, x.device()});
  const bool same = !target.defined() || x.strides() == target.strides();
  const Tensor t = !target.defined() ? target : in_order(same ? target : target.contiguous(), plan);
  reduce_kernel.on(x.device(), function)(kind, in_order(same ? x : x.contiguous(), plan), t, plan.reduced, y,
                                         exact);
  const Tensor result = y.defined() ? y : exact;
  const std::vector<Tensor> inputs = target.defined() ? std::vector{x, target} : std::vector{x};
  if (auto node = autograd::record<DifferenceNode>(inputs, std::span(&result, 1))) {
    const bool is_mean = kind == ReduceKind::mean_magnitude || kind == ReduceKind::mean_square;
    node->name_ = function;
    node->keepdim_shape_ = plan.keepdim_shape;
    node->is_sign_ = kind == ReduceKind::sum_of_magnitudes || kind == ReduceKind::mean_magnitude;
    node->factor_ = (node->is_sign_ || is_norm ? 1.0 : 2.0) /
                    (is_mean ? static_cast<double>(std::max<int64_t>(plan.count, 1)) : 1.0);
    node->saved_x_.save(x);
    node->saved_target_.save(target);
    if (is_norm) node->saved_y_.save(result);
    if (is_norm) node->saved_exact_.save(exact);
  }
  return result;
}

/// The square root, with gradient 0 at 0.
Tensor sqrt_of_sum(const Tensor& squares) {
  const Tensor is_zero = eq(squares, 0);
  const auto number = [&](double value) { return full({}, value, squares.options()); };
  return where(is_zero, number(0), sqrt(where(is_zero, number(1), squares)));
}

struct LogSumExpNode final : autograd::Node {
  const char* name() const override { return "logsumexp"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor x = saved_x_.get();
    const DType wide = opmath(x.dtype());
    const Tensor exact = saved_exact_.get();
    if (!grad_enabled())
      return {gradient(name(), ReduceGradient::exponential, keepdim_shape_, *g[0], x,
                       exact.defined() ? exact : saved_y_.get())};
    const auto kept = [&](const Tensor& t) { return t.to(wide).reshape(keepdim_shape_); };
    const Tensor y =
        exact.defined() ? logsumexp(x.to(wide), reduced_dims(keepdim_shape_), true) : kept(saved_y_.get());
    const Tensor nothing = eq(y, -std::numeric_limits<double>::infinity());
    const Tensor exponent = x.to(wide) - where(nothing, full({}, 0, y.options()), y);
    return {(kept(*g[0]) * exp(exponent)).to(x.dtype())};
  }
  Shape keepdim_shape_;
  autograd::SavedTensor saved_x_{this}, saved_y_{this}, saved_exact_{this};
};

}  // namespace

VarMean var_mean(const Tensor& x, const Shape& dims, Real correction, Flag keepdim) {
  return var_mean_as("var_mean", x, dims, correction, keepdim);
}

Tensor var(const Tensor& x, const Shape& dims, Real correction, Flag keepdim) {
  return var_mean_as("var", x, dims, correction, keepdim).var;
}

Tensor std(const Tensor& x, const Shape& dims, Real correction, Flag keepdim) {
  detail::check_floating("std", "x", x);
  // In f32, because the square of a 16-bit number may not fit 16 bits.
  const Tensor squares = var_mean_as("std", x.to(opmath(x.dtype())), dims, correction, keepdim).var;
  return sqrt_of_sum(squares).to(x.dtype());
}

Tensor norm(const Tensor& x, Real p, const Shape& dims, Flag keepdim) {
  if (detail::autocast_widens(x)) return norm(x.to(f32), p, dims, keepdim);
  detail::check_floating("norm", "x", x);
  if (p == std::numeric_limits<double>::infinity())
    return extremum(ReduceKind::max, "norm", abs(x), dims, keepdim);
  check<ValueError>(p == 1 || p == 2, "norm: p must be 1, 2 or infinity, got ", p);
  return difference("norm", p == 1 ? ReduceKind::sum_of_magnitudes : ReduceKind::norm, x, {},
                    plan_of("norm", x, dims, keepdim), x.dtype());
}

Tensor logsumexp(const Tensor& x, const Shape& dims, Flag keepdim) {
  if (detail::autocast_widens(x)) return logsumexp(x.to(f32), dims, keepdim);
  const Plan plan = plan_of("logsumexp", x, dims, keepdim);
  detail::check_floating("logsumexp", "x", x);
  const Tensor exact = exact_results("logsumexp", x, plan);
  Tensor y = run("logsumexp", ReduceKind::logsumexp, x, plan, x.dtype(), exact);
  if (auto node = autograd::record<LogSumExpNode>({x}, y)) {
    node->keepdim_shape_ = plan.keepdim_shape;
    node->saved_x_.save(x);
    node->saved_y_.save(y);
    node->saved_exact_.save(exact);
  }
  return y;
}

Tensor Tensor::sum(const Shape& dims, Flag keepdim) const { return vox::sum(*this, dims, keepdim); }
Tensor Tensor::mean(const Shape& dims, Flag keepdim) const { return vox::mean(*this, dims, keepdim); }
Tensor Tensor::max(const Shape& dims, Flag keepdim) const { return vox::max(*this, dims, keepdim); }
Tensor Tensor::min(const Shape& dims, Flag keepdim) const { return vox::min(*this, dims, keepdim); }

// ---- What the kernels walk ------------------------------------------------------------------------------

namespace detail {

Tensor reduced_difference(const char* function, ReduceKind kind, const Tensor& x, const Tensor& target,
                          DType dtype) {
  return difference(function, kind, x, target, plan_of(function, x, {}, false), dtype);
}

void check_reducible(const char* function, const Tensor& x) {
  constexpr int64_t address_space = int64_t{1} << 47, widest_result = 16;
  constexpr int64_t most = address_space / widest_result * reduce_block_size;
  static_assert(most == int64_t{1} << 53);
  check<ShapeError>(x.numel() <= most, function, ": at most 2^53 elements can be reduced, got shape ",
                    x.shape());
}

namespace {
/// Dimensions [begin, end) of x without those of size 1, neighbours merged where one stride walks both.
void merge_dims(const Tensor& x, int64_t begin, int64_t end, Shape& shape, Shape& strides) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t size = x.shape()[i], stride = x.strides()[i];
    if (size == 1) continue;
    const int64_t last = shape.rank() - 1;
    if (last >= 0 && strides[last] == size * stride) {
      shape[last] *= size;
      strides[last] = stride;
    } else {
      shape.push_back(size);
      strides.push_back(stride);
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    strides.push_back(1);
  }
}
}  // namespace

RowView rows_of(const Tensor& x, int64_t reduced_dims) {
  RowView v;
  const int64_t split = x.rank() - reduced_dims;
  merge_dims(x, 0, split, v.kept, v.kept_strides);
  merge_dims(x, split, x.rank(), v.reduced, v.reduced_strides);
  for (int64_t size : v.kept) v.rows *= size;
  for (int64_t size : v.reduced) v.length *= size;
  return v;
}

}  // namespace detail

}  // namespace vox

#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/difference.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

// Gradients, with y = op(x) and g the gradient of y, expanded to x's shape:
//   var        g * 2 (x - mean) / (count - correction)
//   logsumexp  g * exp(x - y)
//   max, min   g / (number of ties) where x == y, else 0
//   norm       see NormNode
//   std and prod are composed of other ops
// Each is one kernel. Where the backward is recorded, it is composed of recorded ops instead.

namespace vox {

namespace {

constexpr ByDevice var_mean_kernel{"var_mean", &cpu::var_mean, VOX_CUDA(&cuda::var_mean)};

/// What a node keeps of results in opmath besides their rounded ones: nothing for f32 and f64.
Tensor exact_results(const char* function, const Tensor& x, const detail::ReducePlan& plan) {
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

// ---- max, min, argmax, argmin ---------------------------------------------------------------------------

struct ExtremumNode : autograd::Node {
  explicit ExtremumNode(const char* name) : name_(name) {}
  const char* name() const override { return name_; }
  autograd::Gradients backward(autograd::Gradients g) override {
    if (const Tensor indices = saved_indices_.get(); indices.defined())
      return {where(eq(positions(indices.device()), indices.reshape(keepdim_shape_)),
                    g[0]->reshape(keepdim_shape_), 0)};
    if (!grad_enabled()) {
      const Tensor share = div(g[0]->to(saved_ties_.get().dtype()), saved_ties_.get());
      return {detail::reduce_gradient(name_, ReduceGradient::winner, keepdim_shape_, share, saved_x_.get(),
                                      saved_y_.get())};
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
  const char* name_;
  Shape shape_, keepdim_shape_, dims_;
  autograd::SavedTensor saved_x_{this}, saved_y_{this}, saved_ties_{this};
  autograd::SavedTensor saved_indices_{this};  // instead, in max(x, dim): the first extremum gets all of g
};

detail::ReducePlan extremum_plan(const char* function, const Tensor& x, const Shape& dims, bool keepdim) {
  detail::ReducePlan plan = detail::reduce_plan(function, x, dims, keepdim);
  check<ShapeError>(plan.count > 0, function, ": there is no element to choose from: dims ", dims,
                    " of shape ", x.shape(), " hold none; every reduced size must be > 0");
  return plan;
}

Tensor extremum(ReduceKind kind, const char* function, const Tensor& x, const Shape& dims, bool keepdim,
                const Tensor& indices = {}) {
  const detail::ReducePlan plan = extremum_plan(function, x, dims, keepdim);
  Tensor ties;  // bf16 cannot count beyond 256
  if (is_floating(x.dtype()) && autograd::is_recorded(x) && !indices.defined())
    ties = detail::empty_for(function, plan.shape, {opmath(x.dtype()), x.device()});
  Tensor y = detail::reduced(function, kind, x, plan, x.dtype(), ties);
  if (auto node = autograd::record<ExtremumNode>({x}, y, function)) {
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
  return detail::reduced(function, kind, x, extremum_plan(function, x, dims, keepdim), i64);
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
  const detail::ReducePlan plan = detail::reduce_plan("prod", x, dims, keepdim);
  return in_the_name_of("prod", [&] {
    Shape rows =
        Shape::filled(x.rank() - plan.reduced, 1);  // of the kept dimensions, then one of all reduced ones
    for (int64_t i = 0; i < rows.rank(); ++i) rows[i] = x.shape()[plan.order[i]];
    rows.push_back(plan.count);
    const bool real = is_floating(x.dtype());
    Tensor y = x.to(real ? opmath(x.dtype()) : i64).permute(plan.order).reshape(rows);
    const int64_t last = rows.rank() - 1;
    if (plan.count == 0) y = y.sum(last, true) + 1;
    if (plan.count == 1) y = y.clone();  // a result shares no memory with x
    while (y.shape()[last] > 1) {
      const int64_t n = y.shape()[last], half = n / 2;
      const Tensor pairs = y.slice(last, 0, half) * y.slice(last, half, 2 * half);
      y = n % 2 == 0 ? pairs : cat({pairs, y.slice(last, n - 1, n)}, last);
    }
    return y.reshape(plan.shape).to(real ? x.dtype() : i64);
  });
}

Tensor any(const Tensor& x, const Shape& dims, Flag keepdim) {
  const detail::ReducePlan plan = detail::reduce_plan("any", x, dims, keepdim);
  return in_the_name_of(
      "any", [&] { return ne(detail::reduced("any", ReduceKind::sum, logical_or(x, x), plan, i64), 0); });
}

Tensor all(const Tensor& x, const Shape& dims, Flag keepdim) {
  const detail::ReducePlan plan = detail::reduce_plan("all", x, dims, keepdim);
  return in_the_name_of(
      "all", [&] { return eq(detail::reduced("all", ReduceKind::sum, logical_not(x), plan, i64), 0); });
}

// ---- var, std, norm, logsumexp --------------------------------------------------------------------------

namespace {

struct VarMeanNode final : autograd::Node {
  const char* name() const override { return "var_mean"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor x = saved_x_.get();
    const DType wide = opmath(x.dtype());
    if (!grad_enabled() && g[0])
      return {detail::reduce_gradient(
          name(), ReduceGradient::difference, keepdim_shape_, g[0]->to(wide) * (2 / divisor_), x,
          saved_mean_.get(), g[1] ? g[1]->to(wide) / count_ : zeros(keepdim_shape_, {wide, x.device()}))};
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
  const detail::ReducePlan plan = detail::reduce_plan(function, x, dims, keepdim);
  detail::check_floating(function, "x", x);
  check<ValueError>(std::isfinite(correction), function, ": correction must be finite, got ", correction);
  VarMean y{detail::empty_for(function, plan.shape, x.options()),
            detail::empty_for(function, plan.shape, x.options())};
  Tensor exact_mean = exact_results(function, x, plan);
  var_mean_kernel.on(x.device(), function)(detail::in_order(x, plan.order), plan.reduced, correction, y.var,
                                           y.mean, exact_mean);
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

/// The square root, with gradient 0 at 0.
Tensor sqrt_of_sum(const Tensor& squares) {
  const Tensor is_zero = eq(squares, 0);
  return where(is_zero, 0, sqrt(where(is_zero, 1, squares)));
}

/// The gradient of y = sqrt(sum x^2) is g * x / y, or 0 where y is 0.
struct NormNode final : detail::DifferenceNode {
  NormNode() : DifferenceNode("norm") {}
  Tensor scale(const Tensor& g) const override {
    const Tensor exact = saved_exact_.get(), x = saved_x_.get();
    const DType wide = opmath(x.dtype());
    Tensor y = exact.defined() ? exact : saved_y_.get();
    if (exact.defined() && grad_enabled())  // a recorded gradient needs y on the tape
      y = norm(x.to(wide), 2, reduced_dims(keepdim_shape_), true);
    y = y.reshape(keepdim_shape_);
    const Tensor nothing = eq(y, 0);
    return where(nothing, 0, DifferenceNode::scale(g) / where(nothing, 1, y));
  }
  autograd::SavedTensor saved_y_{this}, saved_exact_{this};
};

Tensor euclidean_norm(const Tensor& x, const detail::ReducePlan& plan) {
  Tensor exact = exact_results("norm", x, plan);
  const Tensor y = detail::reduced("norm", ReduceKind::norm, x, plan, x.dtype(), exact);
  if (auto node = autograd::record<NormNode>({x}, y)) {
    node->keepdim_shape_ = plan.keepdim_shape;
    node->saved_x_.save(x);
    node->saved_y_.save(y);
    node->saved_exact_.save(exact);
  }
  return y;
}

struct LogSumExpNode final : autograd::Node {
  const char* name() const override { return "logsumexp"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor x = saved_x_.get();
    const DType wide = opmath(x.dtype());
    const Tensor exact = saved_exact_.get();
    if (!grad_enabled())
      return {detail::reduce_gradient(name(), ReduceGradient::exponential, keepdim_shape_, *g[0], x,
                                      exact.defined() ? exact : saved_y_.get())};
    const auto kept = [&](const Tensor& t) { return t.to(wide).reshape(keepdim_shape_); };
    const Tensor y =
        exact.defined() ? logsumexp(x.to(wide), reduced_dims(keepdim_shape_), true) : kept(saved_y_.get());
    const Tensor nothing = eq(y, -std::numeric_limits<double>::infinity());
    const Tensor exponent = x.to(wide) - where(nothing, 0, y);
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
  const detail::ReducePlan plan = detail::reduce_plan("norm", x, dims, keepdim);
  if (p == 1)
    return detail::reduced_difference("norm", ReduceKind::sum_of_magnitudes, x, {}, plan, x.dtype());
  return euclidean_norm(x, plan);
}

Tensor logsumexp(const Tensor& x, const Shape& dims, Flag keepdim) {
  if (detail::autocast_widens(x)) return logsumexp(x.to(f32), dims, keepdim);
  const detail::ReducePlan plan = detail::reduce_plan("logsumexp", x, dims, keepdim);
  detail::check_floating("logsumexp", "x", x);
  const Tensor exact = exact_results("logsumexp", x, plan);
  Tensor y = detail::reduced("logsumexp", ReduceKind::logsumexp, x, plan, x.dtype(), exact);
  if (auto node = autograd::record<LogSumExpNode>({x}, y)) {
    node->keepdim_shape_ = plan.keepdim_shape;
    node->saved_x_.save(x);
    node->saved_y_.save(y);
    node->saved_exact_.save(exact);
  }
  return y;
}

Tensor Tensor::max(const Shape& dims, Flag keepdim) const { return vox::max(*this, dims, keepdim); }
Tensor Tensor::min(const Shape& dims, Flag keepdim) const { return vox::min(*this, dims, keepdim); }

// ---- What the kernels walk ------------------------------------------------------------------------------

namespace detail {

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

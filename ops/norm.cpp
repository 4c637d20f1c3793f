#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/norm.h>
#include <voxgrad/ops/reduce.h>

#include <cmath>

// All norms are one op over a NormGeometry. With xhat = (x - mean) rstd and z = xhat weight + bias, h the
// gradient of z (g times the derivative of the activation), and means over a row:
//
//   grad_x = rstd (h weight - mean(h weight) - xhat mean(h weight xhat))
//   grad_weight = sum(h xhat),  grad_bias = sum(h)
//
// and grad_x = rstd h weight where the statistics are constants. The node keeps x, not z or xhat, which are
// computed again: by one kernel or, in a backward that is itself recorded, by ops with the same formulas.

namespace vox {

namespace {

using autograd::Gradients;
using autograd::SavedTensor;
using detail::NormGeometry;
using detail::NormStatistics;
using detail::RunningStatistics;

constexpr ByDevice norm_kernel{"norm", &cpu::norm, VOX_CUDA(&cuda::norm)};
constexpr ByDevice norm_with_kernel{"norm_with", &cpu::norm_with, VOX_CUDA(&cuda::norm_with)};
constexpr ByDevice norm_gradient_kernel{"norm_gradient", &cpu::norm_gradient, VOX_CUDA(&cuda::norm_gradient)};

Tensor dense(const Tensor& t) { return t.defined() ? t.detach().contiguous() : t; }
Tensor empty_like_if(bool wanted, const Tensor& t) { return wanted ? empty_like(t) : Tensor(); }

struct NormNode final : autograd::Node {
  SavedTensor saved_x_{this}, saved_weight_{this}, saved_bias_{this};
  SavedTensor saved_mean_{this}, saved_rstd_{this};  // outside the tape
  NormGeometry g_{};
  bool of_x_ = true;  // whether the statistics are those of x
  double eps_ = 0;
  Activation activation_;

  const char* name() const override { return "norm"; }

  Gradients backward(Gradients gradients) override {
    const Tensor &g = *gradients[0], x = saved_x_.get(), weight = saved_weight_.get(),
                 bias = saved_bias_.get();
    const NormStatistics statistics{saved_mean_.get(), saved_rstd_.get()};
    if (x.numel() == 0) return of_nothing(g, weight, bias);
    return grad_enabled() ? composed(g, x, weight, bias, statistics) : fused(g, x, weight, bias, statistics);
  }

 private:
  Gradients fused(const Tensor& g, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const NormStatistics& statistics) {
    Tensor grad_x = empty_like_if(needs_grad(0), x), grad_weight = empty_like_if(needs_grad(1), weight),
           grad_bias = empty_like_if(needs_grad(2), bias);
    norm_gradient_kernel.on(x.device())(dense(g), dense(x), g_, dense(weight), dense(bias), statistics, of_x_,
                                        activation_, grad_x, grad_weight, grad_bias);
    return {if_needed(0, [&] { return grad_x; }), if_needed(1, [&] { return grad_weight; }),
            if_needed(2, [&] { return grad_bias; })};
  }

  Gradients composed(const Tensor& grad_y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const NormStatistics& statistics) {
    const DType wide = opmath(x.dtype());
    const int64_t outer = g_.rows / g_.groups, channels = g_.length / g_.inner;
    const auto cells = [&](const Tensor& t) {
      return t.to(wide).reshape({g_.pieces, outer, g_.groups, channels, g_.inner});
    };
    const auto of_rows = [&](const Tensor& t) { return t.reshape({1, outer, g_.groups, 1, 1}); };
    const auto of_channels = [&](const Tensor& t) {
      return t.to(wide).reshape({1, 1, g_.groups, channels, 1});
    };
    const Shape row = {0, 3, 4}, channel = {0, 1, 4};

    const Tensor elements = cells(x);
    const Tensor centred = elements - (of_x_ ? mean(elements, row, true) : of_rows(statistics.mean));
    const Tensor rstd = of_x_ ? rsqrt(mean(centred * centred, row, true) + eps_) : of_rows(statistics.rstd);
    const Tensor xhat = centred * rstd;
    Tensor h = cells(grad_y);
    if (activation_ != Activation::none()) {
      Tensor z = xhat.detach();
      if (weight.defined()) z = z * of_channels(weight.detach());
      if (bias.defined()) z = z + of_channels(bias.detach());
      h = of_z(h, z);
    }
    const Tensor hw = weight.defined() ? h * of_channels(weight) : h;
    return {if_needed(0,
                      [&] {
                        const Tensor grad_x =
                            of_x_ ? hw - mean(hw, row, true) - xhat * mean(hw * xhat, row, true) : hw;
                        return (rstd * grad_x).reshape(x.shape()).to(x.dtype());
                      }),
            if_needed(1, [&] { return sum(h * xhat, channel).reshape(weight.shape()).to(weight.dtype()); }),
            if_needed(2, [&] { return sum(h, channel).reshape(bias.shape()).to(bias.dtype()); })};
  }

  /// The gradient of z for the gradient g of y: that of relu or leaky_relu.
  Tensor of_z(const Tensor& g, const Tensor& z) const {
    if (activation_ == Activation::relu()) return where(le(z, 0), full({}, 0, g.options()), g);
    return where(gt(z, 0), g, g * activation_.negative_slope);
  }

  Gradients of_nothing(const Tensor& g, const Tensor& weight, const Tensor& bias) {
    const auto zeros_like = [&](const Tensor& t) { return sum(g).to(t.dtype()).expand(t.shape()); };
    return {if_needed(0, [&] { return g * 0; }), if_needed(1, [&] { return zeros_like(weight); }),
            if_needed(2, [&] { return zeros_like(bias); })};
  }
};

/// One call of a norm. Weight and bias fit x.
struct Norm {
  const char* function;
  const Tensor &x, &weight, &bias;
  NormGeometry g;
  double eps;
  Activation activation;

  /// Normalises by the statistics of x, which also update `running`.
  Tensor by_own_statistics(RunningStatistics running = {}) const {
    Tensor y = detail::empty_for(function, x.shape(), x.options());
    if (x.numel() == 0) return recorded(y, {}, true);
    const TensorOptions options{opmath(x.dtype()), x.device()};
    NormStatistics statistics{empty({g.rows}, options), empty({g.rows}, options)};
    norm_kernel.on(x.device(), function)(dense(x), g, dense(weight), dense(bias), eps, activation, y,
                                         statistics, running);
    return recorded(y, statistics, true);
  }

  /// Normalises by the given running statistics.
  Tensor by(const Tensor& mean, const Tensor& variance) const {
    Tensor y = detail::empty_for(function, x.shape(), x.options());
    if (x.numel() == 0) return recorded(y, {}, false);
    const NormStatistics statistics = of_running(mean, variance);
    norm_with_kernel.on(x.device(), function)(dense(x), g, dense(weight), dense(bias), statistics, activation,
                                              y);
    return recorded(y, statistics, false);
  }

 private:
  NormStatistics of_running(const Tensor& mean, const Tensor& variance) const {
    const auto guard = no_grad();
    const DType wide = opmath(x.dtype());
    return {dense(mean).to(wide), rsqrt(dense(variance).to(wide) + eps)};
  }

  Tensor recorded(const Tensor& y, const NormStatistics& statistics, bool of_x) const {
    if (auto node = autograd::record<NormNode>({x, weight, bias}, y)) {
      node->saved_x_.save(x);
      node->saved_weight_.save(weight);
      node->saved_bias_.save(bias);
      node->saved_mean_.save(statistics.mean);
      node->saved_rstd_.save(statistics.rstd);
      node->g_ = g;
      node->of_x_ = of_x;
      node->eps_ = eps;
      node->activation_ = activation;
    }
    return y;
  }
};

// ---- Checks -----------------------------------------------------------------------------------------------

void check_input(const char* function, const Tensor& x, int64_t min_rank, int64_t max_rank) {
  detail::check_floating(function, "x", x);
  check<ShapeError>(min_rank <= x.rank() && x.rank() <= max_rank, function, ": x must have ", min_rank,
                    " to ", max_rank, " dimensions, got shape ", x.shape());
}

/// Checks operands, defined or not, that belong to x: weight and bias, running mean and variance.
void check_operands(const char* function, const Tensor& x, const Shape& shape,
                    std::initializer_list<std::pair<const char*, Tensor>> operands) {
  const Tensor* first = nullptr;
  for (const auto& [name, t] : operands) {
    if (!t.defined()) continue;
    check<ShapeError>(t.shape() == shape, function, ": ", name, " must have shape ", shape,
                      " for x of shape ", x.shape(), ", got ", t.shape());
    check<DTypeError>(t.dtype() == x.dtype() || t.dtype() == opmath(x.dtype()), function, ": ", name,
                      " must have the dtype of x, ", x.dtype(), ", or f32 beside 16 bits, got ", t.dtype());
    if (!first) first = &t;
    detail::check_same_dtype(function, *first, t);
    detail::check_same_device(function, x, t);
  }
}

void check_several(const char* function, int64_t count, const Tensor& x, const char* of, const char* hint) {
  check<ShapeError>(count != 1, function, ": statistics need at least 2 elements ", of, ", got shape ",
                    x.shape(), hint);
}

/// Checks the running statistics of batch_norm and instance_norm.
void check_running(const char* function, bool needed, const char* option, const Tensor& mean,
                   const Tensor& variance) {
  check<ValueError>(mean.defined() == variance.defined(), function,
                    ": running_mean and running_var must be both defined or both undefined");
  check<ValueError>(mean.defined() || !needed, function, ": running_mean and running_var are needed unless ",
                    option);
}

/// Elements of x beyond its first two dimensions.
int64_t cells_of(const Tensor& x) {
  int64_t cells = 1;
  for (int64_t d = 2; d < x.rank(); ++d) cells *= x.size(d);
  return cells;
}

/// Running statistics as the kernel updates them: of `copies` times C elements. They are the caller's tensors
/// if possible; else copies, whose mean over the first dimension settle() writes back. That is after the norm
/// has read x and was recorded, for statistics that share its memory.
class RunningUpdate {
 public:
  RunningUpdate(const Norm& norm, const Tensor& mean, const Tensor& variance, double momentum, int64_t copies)
      : mean_(mean), variance_(variance), copies_(copies) {
    if (!mean.defined()) return;
    check<ValueError>(std::isfinite(momentum), norm.function, ": momentum must be finite, got ", momentum);
    detail::check_writable(norm.function, "running_mean", mean);
    detail::check_writable(norm.function, "running_var", variance);
    for (const Tensor& t : {mean, variance}) detail::begin_in_place(norm.function, t);
    in_place_ = copies == 1 && mean.is_contiguous() && variance.is_contiguous();
    for (const Tensor& t : {norm.x, norm.weight, norm.bias})
      in_place_ = in_place_ && !shares_storage(t, mean) && !shares_storage(t, variance);
    statistics = {prepared(mean), prepared(variance), momentum};
  }
  void settle() {
    if (!mean_.defined() || in_place_) return;
    const auto guard = no_grad();
    mean_.copy_(vox::mean(statistics.mean.reshape({copies_, mean_.numel()}), {0}));
    variance_.copy_(vox::mean(statistics.variance.reshape({copies_, mean_.numel()}), {0}));
  }
  RunningStatistics statistics;

 private:
  static bool shares_storage(const Tensor& a, const Tensor& b) {
    return a.defined() && a.impl()->storage == b.impl()->storage;
  }
  Tensor prepared(const Tensor& t) const {
    return in_place_ ? t.detach() : t.detach().expand({copies_, t.numel()}).clone();
  }
  Tensor mean_, variance_;
  int64_t copies_;
  bool in_place_ = false;
};

/// The norm by the statistics of x, which also update the running ones.
Tensor updating(const Norm& norm, const Tensor& running_mean, const Tensor& running_var, double momentum,
                int64_t copies) {
  if (norm.x.numel() == 0) return norm.by_own_statistics();
  RunningUpdate running(norm, running_mean, running_var, momentum, copies);
  const Tensor y = norm.by_own_statistics(running.statistics);
  running.settle();
  return y;
}

}  // namespace

// ---- The calls --------------------------------------------------------------------------------------------

Tensor detail::batch_norm(const char* function, const Tensor& x, const Tensor& running_mean,
                          const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                          const BatchNormOptions& o) {
  check_input(function, x, 2, 5);
  check_running(function, !o.training, "training", running_mean, running_var);
  const int64_t n = x.size(0), c = x.size(1), cells = cells_of(x);
  check_operands(
      function, x, {c},
      {{"weight", weight}, {"bias", bias}, {"running_mean", running_mean}, {"running_var", running_var}});
  const Norm norm{function, x, weight, bias, {n, c, cells, c, cells}, o.eps, o.activation};
  if (!o.training) return norm.by(running_mean, running_var);
  check_several(function, n * cells, x, "in each channel", "; use the running statistics instead");
  return updating(norm, running_mean, running_var, o.momentum, 1);
}

Tensor detail::instance_norm(const char* function, const Tensor& x, const Tensor& running_mean,
                             const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                             const InstanceNormOptions& o) {
  check_input(function, x, 3, 5);
  check_running(function, !o.use_input_stats, "use_input_stats", running_mean, running_var);
  if (!o.use_input_stats)
    return batch_norm(function, x, running_mean, running_var, weight, bias,
                      {.eps = o.eps, .activation = o.activation});
  const int64_t n = x.size(0), c = x.size(1), cells = cells_of(x);
  check_operands(
      function, x, {c},
      {{"weight", weight}, {"bias", bias}, {"running_mean", running_mean}, {"running_var", running_var}});
  check_several(function, cells, x, "along the spatial axes", "");
  const Norm norm{function, x, weight, bias, {1, n * c, cells, c, cells}, o.eps, o.activation};
  return updating(norm, running_mean, running_var, o.momentum, n);
}

Tensor detail::group_norm(const char* function, const Tensor& x, int64_t num_groups, const Tensor& weight,
                          const Tensor& bias, double eps, Activation activation) {
  if (autocast_widens(x)) return group_norm(function, x.to(f32), num_groups, weight, bias, eps, activation);
  check_input(function, x, 2, max_rank);
  const int64_t n = x.size(0), c = x.size(1), cells = cells_of(x);
  check<ValueError>(num_groups > 0, function, ": num_groups must be positive, got ", num_groups);
  check<ShapeError>(c % num_groups == 0, function,
                    ": the number of channels must be divisible by num_groups ", num_groups,
                    ", got x of shape ", x.shape());
  check_operands(function, x, {c}, {{"weight", weight}, {"bias", bias}});
  const int64_t length = c / num_groups * cells;
  check_several(function, n * length, x, "in each group", "");
  return Norm{function, x, weight, bias, {1, n * num_groups, length, num_groups, cells}, eps, activation}
      .by_own_statistics();
}

Tensor detail::layer_norm(const char* function, const Tensor& x, const Shape& normalized_shape,
                          const Tensor& weight, const Tensor& bias, double eps, Activation activation) {
  if (autocast_widens(x))
    return layer_norm(function, x.to(f32), normalized_shape, weight, bias, eps, activation);
  check_input(function, x, 1, max_rank);
  const int64_t inner = normalized_shape.rank(), outer = x.rank() - inner;
  check<ShapeError>(inner > 0, function, ": normalized_shape must name at least one dimension");
  check<ShapeError>(outer >= 0 && Shape(x.shape().begin() + outer, x.shape().end()) == normalized_shape,
                    function, ": the last sizes of x must be normalized_shape ", normalized_shape,
                    ", got x of shape ", x.shape());
  check_operands(function, x, normalized_shape, {{"weight", weight}, {"bias", bias}});
  int64_t length = 1;
  for (const int64_t size : normalized_shape) length *= size;
  const int64_t rows = length == 0 ? 0 : x.numel() / length;
  return Norm{function, x, weight, bias, {1, rows, length, 1, 1}, eps, activation}.by_own_statistics();
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  return detail::batch_norm("batch_norm", x, running_mean, running_var, weight, bias, options);
}
Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, const InstanceNormOptions& options) {
  return detail::instance_norm("instance_norm", x, running_mean, running_var, weight, bias, options);
}
Tensor group_norm(const Tensor& x, Int num_groups, const Tensor& weight, const Tensor& bias, Real eps,
                  Activation activation) {
  return detail::group_norm("group_norm", x, num_groups, weight, bias, eps, activation);
}
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  Real eps, Activation activation) {
  return detail::layer_norm("layer_norm", x, normalized_shape, weight, bias, eps, activation);
}

}  // namespace vox

#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/function.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/loss.h>
#include <voxgrad/ops/loss_operands.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/slope.h>
#include <voxgrad/ops/sum.h>

// Losses are composed of recorded ops, so most need no gradients of their own. Cross entropies, Huber's loss,
// and sums and means of mse_loss and l1_loss (mse_loss.cpp) are the exceptions. For 16-bit tensors they, and
// their gradients, are computed in f32 and rounded once.

namespace vox {

Tensor detail::reduced(const Tensor& loss, Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      return loss;
    case Reduction::mean:
      return mean(loss);
    case Reduction::sum:
      return sum(loss);
  }
  throw ValueError("loss: corrupt value of Reduction");
}

namespace {

using detail::reduced;

// ---- Cross entropy of classes -----------------------------------------------------------------------------

constexpr ByDevice cross_entropy_kernel{"cross_entropy", in_f32<&cpu::cross_entropy>,
                                        VOX_CUDA(&cuda::cross_entropy)};
constexpr ByDevice cross_entropy_gradient_kernel{"cross_entropy", in_f32<&cpu::cross_entropy_gradient>,
                                                 VOX_CUDA(&cuda::cross_entropy_gradient)};

/// `per_class` (C) for scores of the given rank, (1, C, 1, ...).
Tensor along_classes(const Tensor& per_class, int64_t rank) {
  Shape shape = Shape::filled(rank, 1);
  shape[1] = per_class.numel();
  return per_class.reshape(shape);
}

/// dx = scale * (softmax(x) * sum(q) - q), with q as in CrossEntropyKernel and scale = g, divided by the
/// divisor of a mean.
struct CrossEntropyNode final : autograd::Node {
  autograd::SavedTensor saved_x_{this}, saved_target_{this}, saved_weight_{this}, saved_divisor_{this};
  CrossEntropyTerms terms_;

  const char* name() const override { return "cross_entropy"; }

  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor x = saved_x_.get(), divisor = saved_divisor_.get();
    Tensor scale = g[0]->to(opmath(x.dtype()));
    if (divisor.defined()) scale = scale / divisor;
    if (grad_enabled()) return {composed(scale, x)};
    Tensor grad_x = detail::empty_for("cross_entropy", x.shape(), x.options());
    if (x.numel() > 0)
      cross_entropy_gradient_kernel.on(x.device())(scale.contiguous(), x.detach().contiguous(),
                                                   saved_target_.get(), saved_weight_.get(), terms_, grad_x);
    return {grad_x};
  }

 private:
  Tensor composed(const Tensor& scale, const Tensor& x) const {
    const TensorOptions wide{opmath(x.dtype()), x.device()};
    const Tensor target = saved_target_.get().unsqueeze(1), weight = saved_weight_.get();
    const int64_t classes = x.size(1);
    const auto number = [&](double value) { return full({}, value, wide); };
    const Tensor is_target = eq(target, along_classes(arange(classes, {i64, x.device()}), x.rank()));
    const Tensor weights = weight.defined() ? along_classes(weight, x.rank()) : number(1);
    Tensor q = where(is_target, weights * (1 - terms_.smoothing), number(0));
    if (terms_.smoothing != 0) q = q + weights * (terms_.smoothing / static_cast<double>(classes));
    Tensor factor = scale.rank() == 0 ? scale : scale.unsqueeze(1);
    for (const Tensor& excluded : {eq(target, terms_.ignore_index), lt(target, 0), ge(target, classes)})
      factor = where(excluded, number(0), factor);
    return (factor * (softmax(x.to(wide.dtype), 1) * sum(q, {1}, true) - q)).to(x.dtype());
  }
};

Tensor cross_entropy_of_classes(const Tensor& input, const Tensor& target, const CrossEntropyOptions& o) {
  check<ShapeError>(input.size(1) > 0 || target.numel() == 0, "cross_entropy: input ", input.shape(),
                    " has no classes, but target ", target.shape(), " has elements");
  const bool is_mean = o.reduction == Reduction::mean;
  const TensorOptions wide{opmath(input.dtype()), input.device()};
  const CrossEntropyTerms terms{o.ignore_index, o.label_smoothing};
  const Tensor weight = o.weight.defined() ? o.weight.detach().to(wide.dtype).contiguous() : Tensor();
  const Tensor x = input.detach().contiguous(), classes = target.contiguous();
  Tensor loss = empty(target.shape(), wide), row_weight = is_mean ? empty_like(loss) : Tensor(), divisor;
  if (x.numel() > 0) cross_entropy_kernel.on(x.device())(x, classes, weight, terms, loss, row_weight);
  if (o.reduction != Reduction::none) loss = sum(loss);
  if (is_mean) loss = loss / (divisor = sum(row_weight));
  loss = loss.to(detail::loss_dtype(input));
  if (auto node = autograd::record<CrossEntropyNode>({input}, loss)) {
    node->saved_x_.save(input);
    node->saved_target_.save(classes);
    node->saved_weight_.save(weight);
    node->saved_divisor_.save(divisor);
    node->terms_ = terms;
  }
  return loss;
}

Tensor cross_entropy_of_probabilities(const Tensor& input, const Tensor& target,
                                      const CrossEntropyOptions& o) {
  const DType wide = opmath(input.dtype());
  Tensor q = target.to(wide) * (1 - o.label_smoothing);
  if (o.label_smoothing != 0) q = q + o.label_smoothing / static_cast<double>(input.size(1));
  if (o.weight.defined()) q = q * along_classes(o.weight.to(wide), input.rank());
  return reduced(-sum(q * log_softmax(input.to(wide), 1), {1}), o.reduction).to(detail::loss_dtype(input));
}

/// Element by element, huber_loss with delta = beta, which is beta * smooth_l1_loss; |d| if beta is 0.
Tensor quadratic_near_zero(const char* function, const Tensor& input, const Tensor& target, double beta) {
  const Tensor d = detail::loss_difference(function, input, target);
  if (beta == 0) return abs(d);
  const auto near = [=](const Tensor& x) { return hardtanh(x, -beta, beta); };
  const auto loss = [&](const Tensor& x) { return near(x) * (x - 0.5 * near(x)); };
  return detail::with_slope(function, d, loss, near);
}

// ---- Binary cross entropy ---------------------------------------------------------------------------------

/// log(1 + e^-x), which is -log(sigmoid(x)): exact beyond the threshold, even in f64.
Tensor minus_log_sigmoid(const Tensor& x) { return softplus(-x, 1, 80); }

/// loss = (1 - t) x + (1 + t (p - 1)) log(1 + e^-x), where p is pos_weight or 1. As in SlopeNode, dx is one
/// product.
struct BinaryCrossEntropyNode final : autograd::Node {
  autograd::SavedTensor saved_x_{this}, saved_target_{this}, saved_pos_weight_{this};

  const char* name() const override { return "binary_cross_entropy_with_logits"; }

  autograd::Gradients backward(autograd::Gradients g) override {
    const Tensor x = saved_x_.get(), t = saved_target_.get(), p = saved_pos_weight_.get();
    const Tensor positive = p.defined() ? p * t : t;
    return {if_needed(0, [&] { return *g[0] * ((1 - t) * sigmoid(x) - positive * sigmoid(-x)); }),
            if_needed(1, [&] { return *g[0] * (p.defined() ? (p - 1) * minus_log_sigmoid(x) - x : -x); }),
            if_needed(2, [&] { return sum_to(*g[0] * t * minus_log_sigmoid(x), p.shape()); })};
  }
};

Tensor cross_entropy_of_scores(const Tensor& x, const Tensor& t, const Tensor& p) {
  Tensor loss;
  {
    const auto guard = no_grad();
    const Tensor certain = minus_log_sigmoid(x);
    loss = (1 - t) * x + (p.defined() ? certain * (1 + t * (p - 1)) : certain);
  }
  if (auto node = autograd::record<BinaryCrossEntropyNode>({x, t, p}, loss)) {
    node->saved_x_.save(x);
    node->saved_target_.save(t);
    node->saved_pos_weight_.save(p);
  }
  return loss;
}

}  // namespace

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, Real beta) {
  check<ValueError>(beta >= 0, "smooth_l1_loss: beta must be >= 0, got ", beta);
  return in_the_name_of("smooth_l1_loss", [&] {
    Tensor loss = quadratic_near_zero("smooth_l1_loss", input, target, beta);
    if (beta > 0) loss = loss / beta;
    return reduced(loss, reduction).to(detail::loss_dtype(input));
  });
}

Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction, Real delta) {
  check<ValueError>(delta > 0, "huber_loss: delta must be > 0, got ", delta);
  return in_the_name_of("huber_loss", [&] {
    return reduced(quadratic_near_zero("huber_loss", input, target, delta), reduction)
        .to(detail::loss_dtype(input));
  });
}

Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyOptions& options) {
  constexpr const char* function = "cross_entropy";
  detail::check_floating(function, "input", input);
  detail::check_defined(function, "target", target);
  detail::check_same_device(function, input, target);
  check<ShapeError>(input.rank() >= 1, function, ": input must be (N, C, ...) or (C), got shape ",
                    input.shape());
  const int64_t classes = input.size(input.rank() == 1 ? 0 : 1);
  if (options.weight.defined()) {
    detail::check_loss_dtypes(function, input, options.weight);
    detail::check_same_device(function, input, options.weight);
    check<ShapeError>(options.weight.shape() == Shape{classes}, function,
                      ": weight must have one number per class, shape ", Shape{classes}, ", got ",
                      options.weight.shape());
  }
  check<ValueError>(options.label_smoothing >= 0 && options.label_smoothing <= 1, function,
                    ": label_smoothing must be in [0, 1], got ", options.label_smoothing);
  const bool probabilities = target.shape() == input.shape() && target.dtype() != i64;
  if (probabilities) {
    detail::check_loss_dtypes(function, input, target);
  } else {
    Shape expected = input.shape();
    expected.erase(input.rank() == 1 ? 0 : 1);
    check<ShapeError>(target.shape() == expected, function, ": for input ", input.shape(),
                      " target must have shape ", expected, " (classes) or ", input.shape(),
                      " (probabilities), got ", target.shape());
    check<DTypeError>(target.dtype() == i64, function, ": a target of classes needs dtype i64, got ",
                      target.dtype());
    check<GradError>(
        !autograd::is_recorded(options.weight), function,
        ": weight has no gradient beside a target of classes; pass weight.detach(), or a target of "
        "probabilities");
  }
  return in_the_name_of(function, [&] {
    const bool batched = input.rank() > 1;
    const Tensor x = batched ? input : input.unsqueeze(0), t = batched ? target : target.unsqueeze(0);
    const Tensor loss = probabilities ? cross_entropy_of_probabilities(x, t, options)
                                      : cross_entropy_of_classes(x, t, options);
    return batched || options.reduction != Reduction::none ? loss : loss.squeeze(0);
  });
}

namespace {

/// `w`, an option of this name, as a factor of the losses of `input`.
Tensor factor(const char* function, const char* name, const Tensor& input, const Tensor& w) {
  detail::check_loss_dtypes(function, input, w);
  detail::check_same_device(function, input, w);
  check<ShapeError>(broadcast_shapes(function, input.shape(), w.shape()) == input.shape(), function, ": ",
                    name, " must broadcast to input's shape ", input.shape(), ", got ", w.shape());
  return w.to(opmath(input.dtype()));
}

/// The losses for p and t. A gradient composed of those of log and clamp would be NaN at 0 and 1.
struct BinaryCrossEntropy : Function<BinaryCrossEntropy> {
  static constexpr const char* name = "binary_cross_entropy";
  static Tensor log_of(const Tensor& p) { return clamp(log(p), {.min = -100}); }
  static Tensor log_of_rest(const Tensor& p) { return clamp(log1p(-p), {.min = -100}); }

  Tensor forward(FunctionContext& context, const std::vector<Tensor>& in) {
    const Tensor &p = in[0], &t = in[1];
    context.save_for_backward({p, t});
    return (t - 1) * log_of_rest(p) - t * log_of(p);
  }
  std::vector<Tensor> backward(FunctionContext& context, const Tensor& g) {
    const Tensor p = context.saved()[0], t = context.saved()[1];
    return {g * (p - t) / clamp(p * (1 - p), {.min = 1e-12}), g * (log_of_rest(p) - log_of(p))};
  }
};

}  // namespace

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            const BinaryCrossEntropyOptions& options) {
  constexpr const char* function = "binary_cross_entropy";
  detail::check_loss_pair(function, "input", input, "target", target);
  check<ValueError>(!options.pos_weight.defined(), function,
                    ": pos_weight is an option of binary_cross_entropy_with_logits");
  // A loss that is too large fails before its elements take time.
  detail::empty_for(function, input.shape(), input.options());
  if (input.device().is_cpu() && input.numel() > 0) {
    const double low = min(input.detach()).item(), high = max(input.detach()).item();
    check<ValueError>(low >= 0 && high <= 1, function, ": probabilities must be in [0, 1], got ", low, " to ",
                      high, " (binary_cross_entropy_with_logits takes scores)");
  }
  return in_the_name_of(function, [&] {
    const DType wide = opmath(input.dtype());
    Tensor loss = BinaryCrossEntropy().apply({input.to(wide), target.to(wide)});
    if (options.weight.defined()) loss = loss * factor(function, "weight", input, options.weight);
    return reduced(loss, options.reduction).to(detail::loss_dtype(input));
  });
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options) {
  constexpr const char* function = "binary_cross_entropy_with_logits";
  detail::check_loss_pair(function, "input", input, "target", target);
  const DType wide = opmath(input.dtype());
  return in_the_name_of(function, [&] {
    const Tensor p =
        options.pos_weight.defined() ? factor(function, "pos_weight", input, options.pos_weight) : Tensor();
    Tensor loss = cross_entropy_of_scores(input.to(wide), target.to(wide), p);
    if (options.weight.defined()) loss = loss * factor(function, "weight", input, options.weight);
    return reduced(loss, options.reduction).to(detail::loss_dtype(input));
  });
}

Tensor soft_dice_loss(const Tensor& probability, const Tensor& target, const Shape& dims, Real smooth) {
  detail::check_loss_pair("soft_dice_loss", "probability", probability, "target", target);
  check<ValueError>(smooth >= 0, "soft_dice_loss: smooth must be >= 0, got ", smooth);
  return in_the_name_of("soft_dice_loss", [&] {
    const DType wide = opmath(probability.dtype());
    const Tensor p = probability.to(wide), t = target.to(wide);
    const Tensor both = sum(p * t, dims), total = sum(p, dims) + sum(t, dims);
    return mean(1 - (2 * both + smooth) / (total + smooth)).to(detail::loss_dtype(probability));
  });
}

}  // namespace vox

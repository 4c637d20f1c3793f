#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/loss_operands.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/segmentation_loss.h>

// Composed of recorded ops; 16-bit tensors are computed in f32.

namespace vox {

namespace {

using detail::reduced;

/// `target` for each class of `input`, with its shape and the dtype that the loss is computed in.
Tensor target_of(const char* function, const Tensor& input, const Tensor& target) {
  detail::check_floating(function, "input", input);
  detail::check_defined(function, "target", target);
  check<ShapeError>(input.rank() >= 2, function, ": input must be (N, C, ...), got shape ", input.shape());
  const DType wide = opmath(input.dtype());
  if (target.dtype() != i64) {
    detail::check_loss_pair(function, "input", input, "target", target);
    return target.to(wide);
  }
  detail::check_same_device(function, input, target);
  Shape one = input.shape(), none = input.shape();
  one[1] = 1, none.erase(1);
  check<ShapeError>(target.shape() == one || target.shape() == none, function, ": for input ", input.shape(),
                    " a target of classes has shape ", none, " or ", one, ", got ", target.shape());
  Shape along = Shape::filled(input.rank(), 1);
  along[1] = input.size(1);
  const Tensor classes = arange(input.size(1), {i64, input.device()}).reshape(along);
  return eq(target.reshape(one), classes).to(wide);
}

Tensor without_background(const char* function, const Tensor& t, bool include_background) {
  check<ShapeError>(include_background || t.size(1) > 1, function,
                    ": include_background = false needs at least 2 channels, got shape ", t.shape());
  return include_background ? t : t.slice(1, 1, t.size(1));
}

/// 1 / volume^2 for each class along the last dimension; for an absent class the largest of the others.
Tensor class_weights(const Tensor& volume) {
  const Tensor weight = 1 / (volume * volume).detach(), absent = isinf(weight);
  const Tensor present = where(absent, 0, weight);
  return where(absent, max(present, {-1}, true).expand(present.shape()), present);
}

}  // namespace

Tensor dice_loss(const Tensor& input, const Tensor& target, const DiceOptions& o) {
  constexpr const char* function = "dice_loss";
  check<ValueError>(!(o.sigmoid && o.softmax), function, ": sigmoid and softmax exclude each other");
  check<ValueError>(o.alpha >= 0 && o.beta >= 0 && o.smooth_nr >= 0 && o.smooth_dr >= 0, function,
                    ": alpha, beta, smooth_nr and smooth_dr must be >= 0, got ", o.alpha, ", ", o.beta, ", ",
                    o.smooth_nr, " and ", o.smooth_dr);
  const Tensor all_classes = target_of(function, input, target);
  return in_the_name_of(function, [&] {
    const Tensor x = input.to(all_classes.dtype());
    const Tensor t = without_background(function, all_classes, o.include_background),
                 p = without_background(function,
                                        o.sigmoid   ? sigmoid(x)
                                        : o.softmax ? softmax(x, 1)
                                                    : x,
                                        o.include_background);
    std::vector<int64_t> cells;
    for (int64_t d = o.batch ? 0 : 2; d < p.rank(); ++d) {
      if (d != 1) cells.push_back(d);
    }
    const auto sum_of = [&](Tensor values) {
      if (o.mask.defined()) {
        check<ShapeError>(broadcast_shapes(function, values.shape(), o.mask.shape()) == values.shape(),
                          function, ": mask ", o.mask.shape(), " does not broadcast to ", values.shape());
        values = values * o.mask.to(values.dtype());
      }
      return cells.empty() ? values : sum(values, cells);
    };
    Tensor both = sum_of(p * t), predicted = sum_of(o.squared_pred ? p * p : p),
           wanted = sum_of(o.squared_pred ? t * t : t);
    Tensor others = 2 * o.alpha * (predicted - both) + 2 * o.beta * (wanted - both);
    if (o.generalized) {
      const Tensor weight = class_weights(wanted);
      both = sum(both * weight, {-1}), others = sum(others * weight, {-1});
    }
    return reduced(1 - (2 * both + o.smooth_nr) / (2 * both + others + o.smooth_dr), o.reduction)
        .to(detail::loss_dtype(input));
  });
}

Tensor focal_loss(const Tensor& input, const Tensor& target, const FocalOptions& o) {
  constexpr const char* function = "focal_loss";
  check<ValueError>(o.gamma >= 0, function, ": gamma must be >= 0, got ", o.gamma);
  check<ValueError>(!o.alpha || (*o.alpha >= 0 && *o.alpha <= 1 && !o.softmax), function,
                    ": alpha must be in [0, 1], and needs softmax = false, got ", o.alpha.value_or(0));
  const Tensor all_classes = target_of(function, input, target);
  return in_the_name_of(function, [&] {
    const Tensor scores = input.to(all_classes.dtype());
    const Tensor t = without_background(function, all_classes, o.include_background),
                 x = without_background(function, o.softmax ? log_softmax(scores, 1) : scores,
                                        o.include_background);
    Tensor loss;
    if (o.softmax) {
      loss = -t * pow(-expm1(x), o.gamma) * x;
    } else {
      const double positive = o.alpha.value_or(1), negative = o.alpha ? 1 - *o.alpha : 1;
      const Tensor yes = softplus(-x, 1, 80), no = softplus(x, 1, 80);  // -log p, -log(1 - p)
      loss = positive * t * exp(-o.gamma * no) * yes + negative * (1 - t) * exp(-o.gamma * yes) * no;
    }
    return reduced(loss, o.reduction).to(detail::loss_dtype(input));
  });
}

}  // namespace vox

#pragma once

#include <voxgrad/ops/mse_loss.h>

namespace vox {

/// With d = input - target: d^2 / (2 beta) where |d| < beta, |d| - beta / 2 elsewhere; beta >= 0. Operands
/// and result as for mse_loss.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
                      Real beta = 1);
/// delta * smooth_l1_loss for beta = delta > 0: d^2 / 2 where |d| < delta, delta (|d| - delta / 2) elsewhere.
Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
                  Real delta = 1);

struct CrossEntropyOptions {
  detail::ByName by_name{};
  Tensor weight = {};           ///< (C), of input's dtype: one factor per class
  int64_t ignore_index = -100;  ///< targets of this class are left out
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;  ///< in [0, 1]: this part of each target is spread evenly over all classes
};
/// -sum over c of q_c log softmax(input)_c along dimension 1, for scores `input` (N, C, ...), or (C), of
/// floating dtype. The target is one of
///
///     (N, ...) i64                  classes in [0, C): q_c = weight_c (1 - label_smoothing) [c == target]
///                                                          + weight_c label_smoothing / C
///     input's shape and dtype       probabilities p: q_c = weight_c ((1 - label_smoothing) p_c
///                                                                    + label_smoothing / C)
///
/// Before the reduction the loss has the shape (N, ...). For classes the mean is the sum divided by the sum
/// of weight[target]; NaN if no target counts. For probabilities it is the mean over all, and ignore_index
/// does nothing. The gradient of input is (softmax(input)_c sum(q) - q_c) times that of the loss. For
/// classes, the loss and the gradient each take one pass over memory, and a weight that requires grad throws
/// GradError; for probabilities, gradients reach target and weight too.
///
/// On the CPU a class out of range throws ValueError. On CUDA, reading the values would stall the stream.
/// There a class out of range makes its loss, and so the mean or sum, NaN, and its scores get no gradient;
/// nothing else is affected.
Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyOptions& options);
inline Tensor cross_entropy(const Tensor& input, const Tensor& target,
                            Reduction reduction = Reduction::mean) {
  return cross_entropy(input, target, CrossEntropyOptions{.reduction = reduction});
}

struct BinaryCrossEntropyOptions {
  detail::ByName by_name{};
  Tensor weight = {};      ///< factors of the losses; broadcasts to input
  Tensor pos_weight = {};  ///< factors of target's part; broadcasts to input
  Reduction reduction = Reduction::mean;
};
/// -weight (pos_weight t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) for scores x = `input` and t =
/// `target` of the same shape and floating dtype, without overflow. Gradients reach all operands.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options = {});

/// -weight (t max(log p, -100) + (1 - t) max(log(1 - p), -100)) for probabilities p = `input` and t =
/// `target` of the same shape and floating dtype; no pos_weight. As in PyTorch, the gradient of p divides by
/// max(p (1 - p), 1e-12). Throws ValueError for a p outside [0, 1] on the CPU; on CUDA, where reading would
/// stall the stream, its loss is NaN. binary_cross_entropy_with_logits of the scores is more accurate.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            const BinaryCrossEntropyOptions& options = {});

/// 1 - (2 sum P T + smooth) / (sum P + sum T + smooth), with probabilities P and a mask or probabilities T of
/// the same shape and floating dtype (Milletari, Navab, Ahmadi: V-Net, 2016). The sums run over `dims`, and
/// over everything if that is empty; the mean over the others is the loss. It ignores how much background
/// there is, which is most of a scan. `smooth` keeps the gradient finite where the structure is absent.
Tensor soft_dice_loss(const Tensor& probability, const Tensor& target, const Shape& dims = {},
                      Real smooth = 1);

}  // namespace vox

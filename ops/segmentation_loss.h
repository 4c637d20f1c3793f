#pragma once

#include <voxgrad/ops/mse_loss.h>

// Losses of segmentation, with the formulas and defaults of MONAI. `input` has shape (N, C, spatial axes) and
// a floating dtype. `target` is one of
//
//     input's shape and dtype             a mask or probabilities for each class
//     (N, ...) or (N, 1, ...) of i64      classes; one that is not in [0, C) belongs to none
//
// Dice and cross entropy together, as in MONAI's DiceCELoss and nnU-Net (whose Dice is smaller by 1):
//
//     dice_loss(x, t, {.softmax = true, .include_background = false, .batch = true}) + cross_entropy(x, t)

namespace vox {

struct DiceOptions {
  detail::ByName by_name{};
  bool sigmoid = false, softmax = false;  ///< what makes probabilities of `input`, which is scores then
  bool include_background = true;         ///< if false, channel 0 is left out, after the softmax
  bool squared_pred = false;              ///< P and T are sums of squares
  bool batch = false;                     ///< sums over all samples, instead of one ratio for each
  bool generalized =
      false;  ///< one ratio for all classes, which sums 1/T^2 of each: MONAI's GeneralizedDiceLoss
  double alpha = 0.5, beta = 0.5;  ///< 0.5 is Dice, 1 is Jaccard, others are Tversky's (arXiv 1706.05721)
  double smooth_nr = 1e-5, smooth_dr = 1e-5;
  Tensor mask = {};  ///< input's dtype, broadcasts to input: cells that count, as for ignored labels
  Reduction reduction = Reduction::mean;
};
/// 1 - (2 I + smooth_nr) / (2 I + 2 alpha (P - I) + 2 beta (T - I) + smooth_dr), where I is the sum over
/// cells of probability times target, and P and T are the sums of both. With alpha = beta = 0.5 that is 1 -
/// (2 I + smooth_nr) / (P + T + smooth_dr). Before the reduction there is a loss for each sample and class,
/// (N, C), or (C) with `batch`; with `generalized`, (N) or (). (The smooth_nr and smooth_dr of MONAI's
/// TverskyLoss count double here.)
Tensor dice_loss(const Tensor& input, const Tensor& target, const DiceOptions& options = {});

struct FocalOptions {
  detail::ByName by_name{};
  double gamma = 2;
  std::optional<double> alpha = {};  ///< with sigmoid: factor of target's part; 1 - alpha that of the rest
  bool softmax = false;              ///< classes exclude each other; otherwise each has its own sigmoid
  bool include_background = true;    ///< if false, channel 0 is left out
  Reduction reduction = Reduction::mean;
};
/// Cross entropy that counts sure answers less (Lin et al., arXiv 1708.02002), of scores, for each cell and
/// class: -t (1 - p)^gamma log p, and, unless `softmax`, the same for 1 - t and 1 - p. The mean is over all
/// elements of `input`, as in MONAI's FocalLoss.
Tensor focal_loss(const Tensor& input, const Tensor& target, const FocalOptions& options = {});

}  // namespace vox

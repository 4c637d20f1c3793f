// Dice and cross entropy together, as U-Nets for medical images are trained.
#pragma once

#include <voxgrad/voxgrad.h>

#include "../common/ranks.h"

namespace unet {

/// 1 - 2 |P T| / (|P| + |T|) with probabilities P instead of a mask (Milletari, Navab, Ahmadi: V-Net, 2016).
/// `probability` and `target` have one shape; the sums run over the whole batch, those parts of it
/// included that other ranks have. It ignores how much background there is, which is most of a scan.
inline vox::Tensor soft_dice_loss(const vox::Tensor& probability, const vox::Tensor& target) {
  const double smooth = 1;  // voxels; keeps the gradient finite in patches without the structure
  const vox::Tensor both = vox::dist::all_reduce((probability * target).sum()),
                    sum = vox::dist::all_reduce(probability.sum() + target.sum());
  return 1 - (2 * both + smooth) / (sum + smooth);
}

/// The sum of both losses, in f32. `scores` (N, 2, D, H, W), `target` (N, D, H, W) i64 of 0 and 1.
inline vox::Tensor segmentation_loss(const vox::Tensor& scores, const vox::Tensor& target) {
  const vox::Tensor s = scores.to(vox::f32);
  return vox::cross_entropy(s, target) + soft_dice_loss(vox::softmax(s, 1).select(1, 1), target.to(vox::f32));
}

}  // namespace unet

// Dice and cross entropy together, as U-Nets for medical images are trained.
#pragma once

#include <voxgrad/voxgrad.h>

#include "../common/ranks.h"

namespace unet {

/// vox::soft_dice_loss, with sums over the whole batch, including the parts on other ranks.
inline vox::Tensor dice_loss_of_all_ranks(const vox::Tensor& probability, const vox::Tensor& target) {
  const double smooth = 1;  // voxels
  const vox::Tensor both = vox::dist::all_reduce((probability * target).sum()),
                    sum = vox::dist::all_reduce(probability.sum() + target.sum());
  return 1 - (2 * both + smooth) / (sum + smooth);
}

/// The sum of both losses, in f32. `scores` (N, 2, D, H, W), `target` (N, D, H, W) i64 of 0 and 1.
inline vox::Tensor segmentation_loss(const vox::Tensor& scores, const vox::Tensor& target) {
  const vox::Tensor s = scores.to(vox::f32);
  return vox::cross_entropy(s, target) +
         dice_loss_of_all_ranks(vox::softmax(s, 1).select(1, 1), target.to(vox::f32));
}

}  // namespace unet

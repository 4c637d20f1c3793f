// Dice and cross entropy together, as U-Nets for medical images are trained.
#pragma once

#include <voxgrad/voxgrad.h>

namespace unet {

/// The sum of both losses, in f32. `scores` (N, 2, D, H, W), `target` (N, D, H, W) i64 of 0 and 1.
inline vox::Tensor segmentation_loss(const vox::Tensor& scores, const vox::Tensor& target) {
  const vox::Tensor s = scores.to(vox::f32);
  return vox::cross_entropy(s, target) +
         vox::soft_dice_loss(vox::softmax(s, 1).select(1, 1), target.to(vox::f32));
}

}  // namespace unet

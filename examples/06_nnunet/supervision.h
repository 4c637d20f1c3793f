// nnU-Net's loss: Dice with cross entropy, or with binary cross entropy for regions, at every resolution.
#pragma once

#include <cmath>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "../common/ranks.h"
#include "plans.h"

namespace nnunet {

/// 1 where a head should say yes: (N, heads, D, H, W), f32. `target` (N, D, H, W), i64, has labels.
inline vox::Tensor heads_of(const Labels& labels, const vox::Tensor& target) {
  std::vector<vox::Tensor> heads;
  for (int64_t h = 0; h < labels.heads; ++h) {
    const auto members =
        labels.has_regions() ? labels.regions[static_cast<size_t>(h)] : std::vector<int64_t>{h};
    vox::Tensor head = vox::eq(target, members[0]).to(vox::f32);
    for (size_t i = 1; i < members.size(); ++i) head = head + vox::eq(target, members[i]).to(vox::f32);
    heads.push_back(head);
  }
  return vox::stack(heads, 1);
}

/// DC_and_CE_loss, or DC_and_BCE_loss for regions, of logits (N, heads, D, H, W) and labels (N, D, H, W),
/// i64: the mean cross entropy minus the mean Dice of the foreground. Voxels of the label "ignore" count
/// nowhere. With `batch_dice`, Dice sums over the batch, including its parts on other ranks.
inline vox::Tensor segmentation_loss(const Labels& labels, bool batch_dice, const vox::Tensor& logits,
                                     const vox::Tensor& target) {
  const vox::Tensor x = logits.to(vox::f32),
                    counts = vox::ne(target, labels.ignore.value_or(-1)).to(vox::f32);
  vox::Tensor p, entropy, wanted = heads_of(labels, target);
  if (labels.has_regions()) {
    const auto weight = labels.ignore ? counts.unsqueeze(1) : vox::Tensor();
    p = vox::sigmoid(x);
    entropy = vox::binary_cross_entropy_with_logits(
        x, wanted,
        {.weight = weight, .reduction = labels.ignore ? vox::Reduction::sum : vox::Reduction::mean});
  } else {
    p = vox::softmax(x, 1).slice(1, 1), wanted = wanted.slice(1, 1);
    entropy = vox::cross_entropy(x, target,
                                 {.ignore_index = labels.ignore.value_or(-1),
                                  .reduction = labels.ignore ? vox::Reduction::sum : vox::Reduction::mean});
  }
  if (labels.ignore) {
    p = p * counts.unsqueeze(1), wanted = wanted * counts.unsqueeze(1);
    entropy = entropy / vox::clamp(counts.sum(), {.min = 1});
  }
  const vox::Shape voxels = batch_dice ? vox::Shape{0, 2, 3, 4} : vox::Shape{2, 3, 4};
  vox::Tensor both = vox::sum(p * wanted, voxels), sum = vox::sum(p, voxels) + vox::sum(wanted, voxels);
  if (batch_dice) both = vox::dist::all_reduce(both), sum = vox::dist::all_reduce(sum);
  constexpr double smooth = 1e-5;
  return entropy - ((2 * both + smooth) / (sum + smooth)).mean();
}

/// The weighted sum over resolutions, finest first, as UNet gives them: weights 1, 1/2, 1/4, ..., 0 for the
/// coarsest, divided by their sum. Coarse labels are the voxels nearest to the middle of each cell.
inline vox::Tensor deep_loss(const Labels& labels, bool batch_dice, const std::vector<vox::Tensor>& logits,
                             const vox::Tensor& target) {
  const size_t count = logits.size() == 1 ? 1 : logits.size() - 1;
  vox::Tensor total;
  for (size_t i = 0; i < count; ++i) {
    vox::Tensor coarse = target;
    for (int64_t axis = 1; axis < 4; ++axis) {
      const int64_t factor = target.size(axis) / logits[i].size(axis + 1);
      coarse = coarse.slice(axis, factor / 2, target.size(axis), factor);
    }
    const double n = static_cast<double>(count),
                 weight = std::exp2(-static_cast<double>(i)) / (2 - std::exp2(1 - n));
    const vox::Tensor loss = segmentation_loss(labels, batch_dice, logits[i], coarse.contiguous()) * weight;
    total = total.defined() ? total + loss : loss;
  }
  return total;
}

}  // namespace nnunet

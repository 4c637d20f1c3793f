// From a scan to what the network sees: crop, normalise, resample; and from logits back to a mask.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <voxgrad/core/tensor.h>

#include "../common/volume.h"
#include "plans.h"

namespace nnunet {

using Spacing = std::array<double, 3>;

using mri::Box;

/// (D, H, W), u8: 1 where a channel of `image` (C, D, H, W) is not 0, and in holes that such voxels enclose.
vox::Tensor nonzero_mask(const vox::Tensor& image);
/// The smallest box around the ones of a mask (D, H, W); all of it if there are none.
Box bounding_box(const vox::Tensor& mask);
/// The part of x (..., D, H, W) in the box.
vox::Tensor crop(const vox::Tensor& x, const Box& box);

/// One channel (D, H, W), f32, normalised. `mask` (D, H, W), u8, has the voxels that count.
vox::Tensor normalise(const vox::Tensor& x, const vox::Tensor& mask, const Channel& channel);

/// nnU-Net's resample_data_or_seg_to_shape of x (C, D, H, W), f32. If either spacing is anisotropic by more
/// than 3, splines work in the planes across the coarse axis, and rule.order_z along it.
vox::Tensor resample(const vox::Tensor& x, const std::array<int64_t, 3>& size, const Spacing& from,
                     const Spacing& to, const Resampling& rule);
/// The same for labels (D, H, W), i64: each label as a mask of its own, of which the largest wins.
vox::Tensor resample_labels(const vox::Tensor& x, const std::array<int64_t, 3>& size, const Spacing& from,
                            const Spacing& to, const Resampling& rule);

/// A scan as the network sees it, and the way back.
struct Case {
  vox::Tensor input;                          ///< (in_channels, D, H, W), f32
  vox::Tensor labels;                         ///< (D, H, W), i64, of training: -1 in the empty part outside
  Box box;                                    ///< the part of the transposed scan that was kept
  std::array<int64_t, 3> whole{}, cropped{};  ///< sizes before and after that
  Spacing spacing{}, target{};                ///< millimetres, of the scan and of `input`
};

/// `image` is (C, D, H, W), f32, with C channels as the model has; `previous` the mask (D, H, W) of the
/// previous stage, which a cascade needs; `labels` the mask (D, H, W) of training. Throws ModelError for
/// other numbers of channels.
Case preprocess(const Model& model, vox::Tensor image, const Spacing& spacing, vox::Tensor previous = {},
                vox::Tensor labels = {});

/// The labels (D, H, W), u8 (i64 if one is above 255), of logits (heads, D, H, W) at the resolution of
/// `input`.
vox::Tensor mask_of(const Model& model, const Case& scan, const vox::Tensor& logits);

}  // namespace nnunet

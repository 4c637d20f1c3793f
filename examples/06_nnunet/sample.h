// Training data: random boxes of cases in memory, and nnU-Net's random changes of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <voxgrad/nn/data/loader.h>
#include <voxgrad/ops/triple.h>

#include "plans.h"

namespace nnunet {

/// A preprocessed case in memory.
struct Volume {
  static constexpr int64_t kOutside = 255;   ///< the label of the empty part outside
  vox::Tensor image;                         ///< (C, D, H, W), f32
  vox::Tensor label;                         ///< (D, H, W), u8
  std::vector<std::vector<int64_t>> voxels;  ///< of each class that is there, at most 10,000
};
/// `label` (D, H, W), i64, has -1 outside, and labels below kOutside.
Volume make_volume(const vox::Tensor& image, const vox::Tensor& label, const Labels& labels);

/// A box {image, label}: around a voxel of a random class if `foreground` and there is one, otherwise at any
/// place. It may reach `margin` / 2 beyond the volume on each side, and always does where the volume is
/// smaller; zeros and kOutside are there.
vox::data::Sample random_box(const Volume& volume, vox::Triple size, vox::Triple margin, bool foreground,
                             vox::Generator& random);

/// How nnUNetTrainer changes patches.
struct Augmentation {
  explicit Augmentation(const Model& model);
  /// A patch {image (C, D, H, W), label (D, H, W)} of the volume, changed at random. kOutside becomes 0, and
  /// so does the image there in channels that are normalised by the mask.
  vox::data::Sample patch(const Volume& volume, bool foreground, vox::Generator& random) const;
  /// The same without a random change.
  vox::data::Sample plain_patch(const Volume& volume, bool foreground, vox::Generator& random) const;

  vox::Triple size;      ///< of the patch
  vox::Triple rotated;   ///< of the box that a rotated and zoomed patch is taken from
  bool is_flat = false;  ///< turns and changes each plane across the first axis as one of 2-D
  double angle = 0;      ///< largest rotation, radians
  bool mirror_first = true;
  std::vector<bool> use_mask;  ///< of each channel
};

}  // namespace nnunet

// The network, and its use on a whole scan.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "../common/volume.h"

namespace unet {

/// Parameters are f32. An input of 16 bits is convolved with weights that are cast to its dtype on the way,
/// so small updates are not lost; instance norm takes f32 parameters beside it.
inline vox::Tensor convolve(const vox::nn::Conv3d& conv, const vox::Tensor& x) {
  const auto& o = conv.options;
  const vox::Tensor bias = conv.bias.defined() ? conv.bias.to(x.dtype()) : conv.bias;
  return vox::conv3d(x, conv.weight.to(x.dtype()), bias, {.stride = o.stride, .padding = o.padding});
}

/// Twice: 3x3x3 convolution, instance norm, leaky ReLU. The first convolution has the stride.
class Level final : public vox::nn::Module {
 public:
  Level(int64_t in_channels, int64_t channels, int64_t stride) {
    for (int64_t i = 0; i < 2; ++i) {
      const std::string number = std::to_string(i);
      // The norm takes the mean away, so a bias has no effect.
      convs_.push_back(
          register_module("conv" + number, vox::nn::Conv3d({.in_channels = i == 0 ? in_channels : channels,
                                                            .out_channels = channels,
                                                            .kernel_size = 3,
                                                            .stride = i == 0 ? stride : 1,
                                                            .padding = 1,
                                                            .bias = false})));
      norms_.push_back(register_module(
          "norm" + number,
          vox::nn::InstanceNorm3d(
              {.num_features = channels, .affine = true, .activation = vox::Activation::leaky_relu(0.01)})));
    }
  }
  vox::Tensor forward(const vox::Tensor& input) override {
    return (*norms_[1])(convolve(*convs_[1], (*norms_[0])(convolve(*convs_[0], input))));
  }

 private:
  std::vector<std::shared_ptr<vox::nn::Conv3d>> convs_;
  std::vector<std::shared_ptr<vox::nn::InstanceNorm3d>> norms_;
};

/// A 3-D U-Net (Cicek et al., 2016) in the form of nnU-Net (Isensee et al., 2021): (N, 1, D, H, W) to the
/// scores (N, 2, D, H, W) of background and structure. Sizes are multiples of kMultiple.
///
///     down:  8 channels -> 16 at 1/2 -> 32 at 1/4 -> 64 at 1/8 of the resolution, by strided convolutions
///     up:    a transposed convolution of kernel 2 and stride 2, cat with the same resolution's features, a
///     level
class UNet final : public vox::nn::Module {
 public:
  static constexpr int64_t kChannels[] = {8, 16, 32, 64};
  static constexpr int64_t kLevels = std::size(kChannels), kMultiple = 1 << (kLevels - 1);

  UNet() {
    for (int64_t i = 0; i < kLevels; ++i) {
      const std::string number = std::to_string(i);
      const int64_t channels = kChannels[i];
      down_.push_back(register_module("down" + number, Level(i ? kChannels[i - 1] : 1, channels, i ? 2 : 1)));
      if (i + 1 == kLevels) break;
      upsample_.push_back(register_module(
          "upsample" + number,
          vox::nn::ConvTranspose3d(
              {.in_channels = kChannels[i + 1], .out_channels = channels, .kernel_size = 2, .stride = 2})));
      up_.push_back(register_module("up" + number, Level(2 * channels, channels, 1)));
    }
    head_ = register_module(
        "head", vox::nn::Conv3d({.in_channels = kChannels[0], .out_channels = 2, .kernel_size = 1}));
  }

  vox::Tensor forward(const vox::Tensor& scan) override {
    std::vector<vox::Tensor> features;
    for (const auto& level : down_) features.push_back((*level)(features.empty() ? scan : features.back()));
    vox::Tensor x = features.back();  // (N, 64, D/8, H/8, W/8)
    for (size_t i = up_.size(); i-- > 0;) {
      const auto& up = *upsample_[i];
      x = vox::conv_transpose3d(x, up.weight.to(x.dtype()), up.bias.to(x.dtype()), {.stride = 2});
      x = (*up_[i])(vox::cat({x, features[i]}, 1));
    }
    return convolve(*head_, x);
  }

 private:
  std::vector<std::shared_ptr<Level>> down_, up_;
  std::vector<std::shared_ptr<vox::nn::ConvTranspose3d>> upsample_;
  std::shared_ptr<vox::nn::Conv3d> head_;
};

/// The structure's mask inside `box`, 0 outside and in air. The network sees cubes of `patch` voxels, as in
/// training, because instance norm depends on what it sees. Of each the middle is kept, half the edge; these
/// tile the scan from its first voxel on, so a voxel's result does not depend on `box`.
inline mri::Mask segment(UNet& network, const mri::Volume& scan, const mri::Box& box, int64_t patch,
                         vox::Device device, vox::DType dtype) {
  if (std::min({scan.size[0], scan.size[1], scan.size[2]}) < patch)
    throw std::invalid_argument("segment: the scan has an axis below " + std::to_string(patch) + " voxels");
  const auto guard = vox::no_grad();
  const int64_t core = patch / 2;
  mri::Box cores{};  // those that meet the box
  for (int axis = 0; axis < 3; ++axis) {
    cores.begin[axis] = box.begin[axis] / core;
    cores.end[axis] = (box.end[axis] + core - 1) / core;
  }
  mri::Mask mask(scan.voxels.size());
  for_each_voxel(cores, [&](int64_t d, int64_t h, int64_t w) {
    const mri::Size place{d, h, w};
    mri::Box kept;
    mri::Size origin{};
    for (int axis = 0; axis < 3; ++axis) {
      kept.begin[axis] = std::max(place[axis] * core, box.begin[axis]);
      kept.end[axis] = std::min((place[axis] + 1) * core, box.end[axis]);
      origin[axis] = std::clamp<int64_t>(place[axis] * core - core / 2, 0, scan.size[axis] - patch);
    }
    const mri::Volume cube = mri::crop(scan, origin, {patch, patch, patch});
    const vox::Tensor input = vox::from_vector<float>(cube.voxels, {1, 1, patch, patch, patch}, device);
    vox::Tensor scores = network(input.to(dtype)).to(vox::f32);
    for (int axis = 0; axis < 3; ++axis)
      scores = scores.slice(2 + axis, kept.begin[axis] - origin[axis], kept.end[axis] - origin[axis]);
    const std::vector<float> lead = (scores.select(1, 1) - scores.select(1, 0)).to_vector<float>();
    auto next = lead.begin();
    for_each_voxel(kept, [&](int64_t i, int64_t j, int64_t k) {
      mask[scan.index(i, j, k)] = *next++ > 0 && scan.at(i, j, k) > mri::kAir;
    });
  });
  return mask;
}

}  // namespace unet

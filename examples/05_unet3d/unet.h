// The network, and its use on a whole scan.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "../common/volume.h"

namespace unet {

/// 3x3x3 convolution, instance norm, leaky ReLU; then the same again. The first convolution has the stride.
struct Level final : vox::nn::Module {
  vox::nn::Conv3d conv0, conv1;
  vox::nn::InstanceNorm3d norm0, norm1;
  VOXGRAD_MODULE(conv0, norm0, conv1, norm1)

  Level(int64_t in_channels, int64_t channels, int64_t stride)
      : conv0(conv(in_channels, channels, stride)),
        conv1(conv(channels, channels, 1)),
        norm0(norm(channels)),
        norm1(norm(channels)) {}
  vox::Tensor forward(const vox::Tensor& input) { return norm1(conv1(norm0(conv0(input)))); }

  static vox::nn::Conv3d conv(int64_t in_channels, int64_t channels, int64_t stride) {
    return vox::nn::Conv3d({.in_channels = in_channels,
                            .out_channels = channels,
                            .kernel_size = 3,
                            .stride = stride,
                            .padding = 1,
                            .bias = false});  // the norm takes the mean away, so a bias has no effect
  }
  static vox::nn::InstanceNorm3d norm(int64_t channels) {
    return vox::nn::InstanceNorm3d(
        {.num_features = channels, .affine = true, .activation = vox::Activation::leaky_relu(0.01)});
  }
};

/// A 3-D U-Net (Cicek et al., 2016) in the form of nnU-Net (Isensee et al., 2021): (N, 1, D, H, W) to the
/// scores (N, 2, D, H, W) of background and structure. Sizes are multiples of kMultiple.
///
///     down:  8 channels -> 16 at 1/2 -> 32 at 1/4 -> 64 at 1/8 of the resolution, by strided convolutions
///     up:    transposed convolution of kernel 2 and stride 2; cat with that resolution's features; Level
struct UNet final : vox::nn::Module {
  static constexpr int64_t kChannels[] = {8, 16, 32, 64};
  static constexpr int64_t kLevels = std::size(kChannels), kMultiple = 1 << (kLevels - 1);

  std::vector<Level> down, up;
  std::vector<vox::nn::ConvTranspose3d> upsample;
  std::optional<vox::nn::Conv3d> head;
  VOXGRAD_MODULE(down, upsample, up, head)

  UNet() {
    for (int64_t i = 0; i < kLevels; ++i) {
      const int64_t channels = kChannels[i];
      down.emplace_back(i ? kChannels[i - 1] : 1, channels, i ? 2 : 1);
      if (i + 1 == kLevels) break;
      upsample.push_back(vox::nn::ConvTranspose3d(
          {.in_channels = kChannels[i + 1], .out_channels = channels, .kernel_size = 2, .stride = 2}));
      up.emplace_back(2 * channels, channels, 1);
    }
    head.emplace(vox::nn::Conv3d::Options{.in_channels = kChannels[0], .out_channels = 2, .kernel_size = 1});
  }

  vox::Tensor forward(const vox::Tensor& scan) {
    std::vector<vox::Tensor> features;
    for (Level& level : down) features.push_back(level(features.empty() ? scan : features.back()));
    vox::Tensor x = features.back();  // (N, 64, D/8, H/8, W/8)
    for (size_t i = up.size(); i-- > 0;) {
      x = up[i](vox::cat({upsample[i](x), features[i]}, 1));
    }
    return (*head)(x);
  }
};

/// The structure's mask inside `box`, 0 outside and in air. The network sees cubes with an edge of `patch`
/// voxels, as in training, because instance norm depends on the whole cube. Of each cube, the middle part
/// with half its edge is kept. These parts tile the scan from its first voxel on, so a voxel's result does
/// not depend on `box`.
inline mri::Mask segment(UNet& network, const mri::Volume& scan, const mri::Box& box, int64_t patch,
                         vox::Device device) {
  if (std::min({scan.size[0], scan.size[1], scan.size[2]}) < patch)
    throw std::invalid_argument("segment: the scan has an axis below " + std::to_string(patch) + " voxels");
  const auto guard = vox::no_grad();
  const int64_t core = patch / 2;
  mri::Box cores{};  // the numbers of the kept parts that meet the box, along each axis
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
    vox::Tensor scores = network(to_tensor(cube).to(device)).to(vox::f32);
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

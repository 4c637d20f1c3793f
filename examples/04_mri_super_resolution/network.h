// The network: trilinear interpolation plus a learned correction; and its use on a whole head.
#pragma once

#include <algorithm>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "../common/volume.h"

namespace mri {

/// Doubles the resolution of (N, 1, D, H, W) to (N, 1, 2D, 2H, 2W):
///
///     features = relu(conv(low))                         16 channels
///     features = features + relu(conv(features))         twice
///     high     = trilinear(low) + conv_transpose(features)
///
/// All convolutions work on the low-resolution grid, which costs an eighth. The last layer starts with zeros,
/// so the untrained network is trilinear interpolation, and training only adds to it.
struct SuperResolution final : vox::nn::Module {
  static constexpr int64_t kFeatures = 16;
  static constexpr int64_t kRefinements = 2;  // convolutions in `refine`

  /// Low-resolution voxels that an output voxel can see in each direction: one for every 3x3x3 convolution,
  /// and one for the transposed convolution (or the interpolation, which sees as far).
  static constexpr int64_t kReach = 1 + kRefinements + 1;

  vox::nn::Conv3d extract = conv(1);
  vox::nn::ModuleList<vox::nn::Conv3d> refine{conv(kFeatures), conv(kFeatures)};
  vox::nn::ConvTranspose3d upsample{
      {.in_channels = kFeatures, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1}};
  VOXGRAD_MODULE(extract, refine, upsample)

  SuperResolution() {
    const auto guard = vox::no_grad();
    upsample.weight.zero_();
    upsample.bias.zero_();
  }

  vox::Tensor forward(const vox::Tensor& low) {
    vox::Tensor features = vox::relu(extract(low));                             // (N, 16, D, H, W)
    for (auto& conv : refine) features = features + vox::relu(conv(features));  // (N, 16, D, H, W)
    const vox::Tensor trilinear = vox::interpolate(
        low, {.scale_factor = {{2, 2, 2}}, .mode = vox::InterpolateOptions::Mode::trilinear});
    return trilinear + upsample(features);  // (N, 1, 2D, 2H, 2W)
  }

  static vox::nn::Conv3d conv(int64_t in_channels) {
    return vox::nn::Conv3d(
        {.in_channels = in_channels, .out_channels = kFeatures, .kernel_size = 3, .padding = 1});
  }
};

/// Doubles the resolution of the planes `range` of `low` (all other axes whole), in tiles of a few planes,
/// each computed with the neighbours that the network sees: the result equals that of the whole volume in one
/// piece.
inline Volume super_resolve(SuperResolution& network, const Volume& low, Range range, vox::Device device) {
  constexpr int64_t kTile = 16;
  const auto guard = vox::no_grad();
  Volume high({2 * range.length(), 2 * low.size[1], 2 * low.size[2]});
  for (int axis = 0; axis < 3; ++axis) high.spacing[axis] = low.spacing[axis] / 2;
  auto out = high.voxels.begin();
  for (int64_t begin = range.begin; begin < range.end; begin += kTile) {
    const int64_t end = std::min(begin + kTile, range.end);
    const int64_t first = std::max<int64_t>(begin - SuperResolution::kReach, 0);
    const int64_t last = std::min(end + SuperResolution::kReach, low.size[0]);
    const Volume tile = crop(low, {first, 0, 0}, {last - first, low.size[1], low.size[2]});
    const vox::Tensor output =
        network(to_tensor(tile).to(device)).slice(2, 2 * (begin - first), 2 * (end - first));
    const std::vector<float> values = output.to_vector<float>();
    out = std::copy(values.begin(), values.end(), out);
  }
  return high;
}

/// All planes.
inline Volume super_resolve(SuperResolution& network, const Volume& low, vox::Device device) {
  return super_resolve(network, low, {0, low.size[0]}, device);
}

}  // namespace mri

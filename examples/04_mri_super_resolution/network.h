// The network: trilinear interpolation, plus a correction that it learns.
#pragma once

#include <memory>
#include <vector>

#include <voxgrad/nn/conv3d.h>
#include <voxgrad/nn/conv_transpose3d.h>
#include <voxgrad/voxgrad.h>

namespace mri {

/// Doubles the resolution of (N, 1, D, H, W) to (N, 1, 2D, 2H, 2W):
///
///     features = relu(conv(low))                         16 channels
///     features = features + relu(conv(features))         twice
///     high     = trilinear(low) + conv_transpose(features)
///
/// All the work is done on the small grid, where it costs an eighth. The last layer starts with zeros, so
/// that the untrained network is trilinear interpolation and training can only add to it.
class SuperResolution final : public vox::nn::Module {
 public:
  SuperResolution();
  vox::Tensor forward(const vox::Tensor& low) override;

  /// Low-resolution voxels that an output voxel can see in each direction: one for every 3x3x3 convolution,
  /// and one for the transposed convolution (or the interpolation, which sees as far).
  static constexpr int64_t kReach = 4;

 private:
  std::shared_ptr<vox::nn::Conv3d> extract_;
  std::vector<std::shared_ptr<vox::nn::Conv3d>> refine_;
  std::shared_ptr<vox::nn::ConvTranspose3d> upsample_;
};

}  // namespace mri

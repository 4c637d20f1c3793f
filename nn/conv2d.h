#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/conv3d.h>

namespace vox::nn {

/// conv2d (ops/conv3d.h) with a weight (out_channels, in_channels/groups, kH, kW) and a bias of its own, both
/// uniform in +-1/sqrt(in_channels/groups * kH*kW) at first.
/// (N, in_channels, H, W) -> (N, out_channels, H', W'); without N likewise.
class Conv2d final : public Module {
 public:
  struct Options {
    int64_t in_channels, out_channels;
    Pair kernel_size;
    Pair stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;
    bool bias = true;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit Conv2d(const Options& options);
  Tensor forward(const Tensor& input) override;

  const Options options;
  Tensor weight, bias;
};

}  // namespace vox::nn

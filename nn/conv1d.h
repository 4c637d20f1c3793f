#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/conv3d.h>

namespace vox::nn {

/// conv1d (ops/conv3d.h) with a weight (out_channels, in_channels/groups, k) and a bias of its own, both
/// uniform in +-1/sqrt(in_channels/groups * k) at first.
/// (N, in_channels, L) -> (N, out_channels, L'); without N likewise.
class Conv1d final : public Module {
 public:
  struct Options {
    int64_t in_channels, out_channels;
    int64_t kernel_size;
    int64_t stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;
    bool bias = true;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit Conv1d(const Options& options);
  Tensor forward(const Tensor& input) override;

  const Options options;
  Tensor weight, bias;
};

}  // namespace vox::nn

#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/conv3d.h>

namespace vox::nn {

/// Upsamples: conv_transpose3d (ops/conv3d.h) with a weight (in_channels, out_channels/groups, kD, kH, kW)
/// and a bias of its own, both uniform in +-1/sqrt(out_channels/groups * kD*kH*kW) at first. (N, in_channels,
/// D, H, W) -> (N, out_channels, D', H', W'); without N likewise.
class ConvTranspose3d final : public Module {
 public:
  struct Options {
    int64_t in_channels, out_channels;
    Triple kernel_size;
    Triple stride = 1, padding = 0, output_padding = 0;
    int64_t groups = 1;
    bool bias = true;
    Triple dilation = 1;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit ConvTranspose3d(const Options& options);
  Tensor forward(const Tensor& input) override;
  /// Reaches exactly `output_size` (D, H, W), in place of output_padding; throws if no legal one does.
  Tensor forward(const Tensor& input, Triple output_size);
  using Module::operator();
  Tensor operator()(const Tensor& input, Triple output_size) { return forward(input, output_size); }

  const Options options;
  Tensor weight, bias;
};

}  // namespace vox::nn

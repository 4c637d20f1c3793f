#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/conv3d.h>

namespace vox::nn {

/// Upsamples: conv_transpose2d (ops/conv3d.h) with a weight (in_channels, out_channels/groups, kH, kW) and a
/// bias of its own, both uniform in +-1/sqrt(out_channels/groups * kH*kW) at first. (N, in_channels, H, W) ->
/// (N, out_channels, H', W'); without N likewise.
class ConvTranspose2d final : public Module {
 public:
  struct Options {
    int64_t in_channels, out_channels;
    Pair kernel_size;
    Pair stride = 1, padding = 0, output_padding = 0;
    int64_t groups = 1;
    bool bias = true;
    Pair dilation = 1;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit ConvTranspose2d(const Options& options);
  Tensor forward(const Tensor& input) override;
  /// Reaches exactly `output_size`, in place of output_padding; throws if no legal one does.
  Tensor forward(const Tensor& input, Pair output_size);
  using Module::operator();
  Tensor operator()(const Tensor& input, Pair output_size) { return forward(input, output_size); }

  const Options options;
  Tensor weight, bias;
};

}  // namespace vox::nn

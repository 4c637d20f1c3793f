#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/conv3d.h>

namespace vox::nn {

/// Upsamples: conv_transpose1d (ops/conv3d.h) with a weight (in_channels, out_channels/groups, k) and a bias
/// of its own, both uniform in +-1/sqrt(out_channels/groups * k) at first.
/// (N, in_channels, L) -> (N, out_channels, L'); without N likewise.
class ConvTranspose1d final : public Module {
 public:
  struct Options {
    int64_t in_channels, out_channels;
    int64_t kernel_size;
    int64_t stride = 1, padding = 0, output_padding = 0;
    int64_t groups = 1;
    bool bias = true;
    int64_t dilation = 1;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit ConvTranspose1d(const Options& options);
  Tensor forward(const Tensor& input) override;
  /// Reaches exactly `output_size`, in place of output_padding; throws if no legal one does.
  Tensor forward(const Tensor& input, int64_t output_size);
  using Module::operator();
  Tensor operator()(const Tensor& input, int64_t output_size) { return forward(input, output_size); }

  const Options options;
  Tensor weight, bias;
};

}  // namespace vox::nn

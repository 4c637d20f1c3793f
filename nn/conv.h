#pragma once

#include <type_traits>

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/conv1d_conv2d.h>

// The convolutions of ops/conv3d.h as layers with their own weight and bias. k stands for the sizes of the
// kernel: (k), (kH, kW) or (kD, kH, kW). The constructor refuses options that no input fits.

namespace vox::nn {

/// One number for each spatial axis: an int64_t, a Pair in H, W order, or a Triple in D, H, W order.
template <int dims>
using Spatial = std::conditional_t<dims == 1, int64_t, std::conditional_t<dims == 2, Pair, Triple>>;

/// conv1d, conv2d or conv3d, with a weight (out_channels, in_channels/groups, k) and a bias (out_channels).
/// Both start uniform in +-1/sqrt(in_channels/groups * volume of k). (N, in_channels, spatial axes) -> (N,
/// out_channels, spatial axes); the same without N.
template <int dims>
class Conv final : public Module {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    int64_t in_channels, out_channels;
    Spatial<dims> kernel_size;
    Spatial<dims> stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;
    bool bias = true;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit Conv(const Options& options);
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input);
  std::string describe() const override;
  int64_t multiply_adds(const Tensor&, const Tensor& output) const override {
    return output.numel() * (weight.numel() / weight.size(0));
  }

  Options options;
  Tensor weight, bias;
};

/// conv_transpose1d, conv_transpose2d or conv_transpose3d, which upsample, with a weight (in_channels,
/// out_channels/groups, k) and a bias (out_channels). Both start uniform in +-1/sqrt(out_channels/groups *
/// volume of k). Shapes as for Conv.
template <int dims>
class ConvTranspose final : public Module {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    int64_t in_channels, out_channels;
    Spatial<dims> kernel_size;
    Spatial<dims> stride = 1, padding = 0, output_padding = 0;
    int64_t groups = 1;
    bool bias = true;
    Spatial<dims> dilation = 1;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit ConvTranspose(const Options& options);
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input);
  /// Returns a result of exactly the spatial sizes `output_size`; replaces output_padding. Throws if no legal
  /// output_padding gives these sizes.
  Tensor forward(const Tensor& input, Spatial<dims> output_size);
  Tensor operator()(const Tensor& input, Spatial<dims> output_size) {  // takes {13, 10} too
    return call_with_hooks(*this, input, output_size);
  }
  std::string describe() const override;
  int64_t multiply_adds(const Tensor& input, const Tensor&) const override {
    return input.numel() * (weight.numel() / weight.size(0));
  }

  Options options;
  Tensor weight, bias;
};

using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;

}  // namespace vox::nn

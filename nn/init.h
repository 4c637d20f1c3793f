#pragma once

#include <voxgrad/core/tensor.h>

/// Initial values of parameters. They are written in place and not recorded. Random values come from the
/// default generator.
namespace vox::nn::init {

Tensor& uniform_(Tensor& t, Real low, Real high);
Tensor& normal_(Tensor& t, Real mean, Real std);

/// Number of inputs that are summed for one output element, as PyTorch counts it: weight.shape[1] * kernel
/// volume.
int64_t fan_in(const Tensor& weight);
/// The reverse: weight.shape[0] * kernel volume.
int64_t fan_out(const Tensor& weight);

/// Uniform in +-1/sqrt(fan): the default of weights and biases in PyTorch's Linear, Conv and ConvTranspose.
Tensor& default_uniform_(Tensor& t, Int fan);
/// Normal with std sqrt(2 / fan_in), for relu networks (He et al., arXiv 1502.01852).
Tensor& kaiming_normal_(Tensor& weight);
/// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010).
Tensor& xavier_uniform_(Tensor& weight);

/// Normal with this mean and std, within [a, b]; outside there is nothing (PyTorch's trunc_normal_). Numbers
/// are drawn on the CPU, and are the same on every device.
Tensor& trunc_normal_(Tensor& t, Real mean = 0, Real std = 1, Real a = -2, Real b = 2);

/// For a convolution before a pixel shuffle by `upscale_factor` on each of its axes: the channels that become
/// one cell's neighbours start equal, as `initialise` writes them, so that the result starts as a nearest
/// upsampling without a checkerboard (ICNR: Aitken et al., arXiv 1707.02937). weight.shape[0] must be
/// divisible by the factor to the number of axes.
Tensor& icnr_(Tensor& weight, Int upscale_factor, Tensor& (*initialise)(Tensor& weight) = kaiming_normal_);

}  // namespace vox::nn::init

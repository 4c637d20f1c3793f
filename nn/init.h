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

}  // namespace vox::nn::init

#pragma once

#include <voxgrad/core/tensor.h>

// Private: batch normalisation on the CPU, f32 and f64, fused by channel. x, g and the results of x's shape,
// (N, C, D, H, W), are dense, but for the x of the first two, of any strides; everything else has C elements,
// dense. weight and bias may be undefined.

namespace vox::cpu {

/// mean and variance (biased) of each channel, scale = weight / sqrt(variance + eps), and
/// y = (x - mean) * scale + bias.
void batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& y,
                Tensor& mean, Tensor& variance);

/// y = (x - mean) * scale + shift
void scale_channels(const Tensor& x, const Tensor& mean, const Tensor& scale, const Tensor& shift, Tensor& y);

/// The gradients of batch_norm for g, that of y. weight may be undefined.
void batch_norm_gradient(const Tensor& g, const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& variance, double eps, Tensor& grad_x, Tensor& grad_weight,
                         Tensor& grad_bias);

}  // namespace vox::cpu

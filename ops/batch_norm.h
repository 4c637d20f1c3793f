#pragma once

#include <voxgrad/core/tensor.h>

// Private: what nn::BatchNorm3d is made of.

namespace vox::detail {

/// y, recorded; mean and (biased) variance of each channel, which are not, shape (C).
struct BatchNorm {
  Tensor y, mean, variance;
};

/// (x - mean) / sqrt(variance + eps) * weight + bias with the statistics of x itself, (N, C, D, H, W); weight
/// and bias (C) may be undefined. A channel has at least one element.
BatchNorm batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

/// The same with given statistics (C).
Tensor normalize(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                 const Tensor& bias, double eps);

}  // namespace vox::detail

#pragma once

#include <voxgrad/core/tensor.h>

// Private: the ops behind nn::BatchNorm3d.

namespace vox::detail {

/// y is recorded. mean and (biased) variance of each channel, of shape (C), are not.
struct BatchNorm {
  Tensor y, mean, variance;
};

/// (x - mean) / sqrt(variance + eps) * weight + bias with the statistics of x itself, which is (N, C, D, H,
/// W). weight and bias, (C), may be undefined. A channel has at least one element.
BatchNorm batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

/// The same with given statistics (C).
Tensor normalize(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                 const Tensor& bias, double eps);

}  // namespace vox::detail

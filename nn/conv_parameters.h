#pragma once

#include <voxgrad/core/tensor.h>

/// What all convolution layers do in their constructors.
namespace vox::nn::detail {

/// Throws ValueError, naming `layer`, unless channels and groups are positive and groups divides both.
void check_channels(const char* layer, int64_t in_channels, int64_t out_channels, int64_t groups);

/// A weight of `shape` with PyTorch's initial distribution. Kernel sizes must be positive.
Tensor conv_weight(const char* layer, const Shape& shape, TensorOptions options);

/// A bias with the same bound as `weight`.
Tensor conv_bias(int64_t out_channels, const Tensor& weight);

}  // namespace vox::nn::detail

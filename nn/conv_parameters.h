#pragma once

#include <voxgrad/core/tensor.h>

/// What all convolution layers share.
namespace vox::nn::detail {

/// Throws ValueError, naming `layer`, unless channels and groups are positive and groups divides both.
void check_channels(const char* layer, int64_t in_channels, int64_t out_channels, int64_t groups);

/// A weight of `shape` with PyTorch's initial distribution. Kernel sizes must be positive.
Tensor conv_weight(const char* layer, const Shape& shape, TensorOptions options);

/// A bias with the same bound as `weight`.
Tensor conv_bias(int64_t out_channels, const Tensor& weight);

/// A layer's options as those of its op.
template <class Options>
Options conv_options(const auto& o) {
  return {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
}
template <class Options>
Options conv_transpose_options(const auto& o) {
  return {.stride = o.stride,
          .padding = o.padding,
          .output_padding = o.output_padding,
          .groups = o.groups,
          .dilation = o.dilation};
}

}  // namespace vox::nn::detail

#pragma once

#include "tests/support/test.h"

// Layers with positional arguments, in the order in which they are printed; and the ops that convolutions
// stand for.

namespace vox::testing {

inline nn::Linear linear(int64_t in, int64_t out, bool bias = true) {
  return nn::Linear({.in_features = in, .out_features = out, .bias = bias});
}

template <class L>
using SizeOf = decltype(L::Options::kernel_size);

/// Options of a Conv or a ConvTranspose.
template <class L>
typename L::Options conv(int64_t in, int64_t out, SizeOf<L> kernel, SizeOf<L> stride = 1,
                         SizeOf<L> padding = 0, SizeOf<L> dilation = 1, int64_t groups = 1,
                         bool bias = true) {
  return {.in_channels = in,
          .out_channels = out,
          .kernel_size = kernel,
          .stride = stride,
          .padding = padding,
          .dilation = dilation,
          .groups = groups,
          .bias = bias};
}
template <class L>
typename L::Options transposed(int64_t in, int64_t out, SizeOf<L> kernel, SizeOf<L> stride = 1,
                               SizeOf<L> padding = 0, SizeOf<L> output_padding = 0, SizeOf<L> dilation = 1,
                               int64_t groups = 1, bool bias = true) {
  return {.in_channels = in,
          .out_channels = out,
          .kernel_size = kernel,
          .stride = stride,
          .padding = padding,
          .output_padding = output_padding,
          .groups = groups,
          .bias = bias,
          .dilation = dilation};
}

/// The op that the layer stands for.
template <int dims>
Tensor op_of(const typename nn::Conv<dims>::Options& o, const Tensor& x, const Tensor& w, const Tensor& b) {
  const auto op = std::get<dims - 1>(std::tuple(&conv1d, &conv2d, &conv3d));
  return op(x, w, b, {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
}
template <int dims>
Tensor op_of(const typename nn::ConvTranspose<dims>::Options& o, const Tensor& x, const Tensor& w,
             const Tensor& b) {
  const auto op = std::get<dims - 1>(std::tuple(&conv_transpose1d, &conv_transpose2d, &conv_transpose3d));
  return op(x, w, b,
            {.stride = o.stride,
             .padding = o.padding,
             .output_padding = o.output_padding,
             .groups = o.groups,
             .dilation = o.dilation});
}

}  // namespace vox::testing

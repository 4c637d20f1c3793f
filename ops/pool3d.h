#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

// Pooling over windows of (N, C, D, H, W) or (C, D, H, W) of floating dtype, with PyTorch's arguments and
// sizes.
//
// On each axis, window o covers the existing cells among o * stride - padding + k * dilation, k = 0 ..
// kernel_size - 1. There are floor((in + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1
// windows. With ceil_mode the quotient is rounded up, and a last window that begins beyond input and left
// padding is dropped.
//
// Both throw ShapeError for other ranks, for D, H or W of 0 and for sizes that leave no window; DTypeError
// for other dtypes; ValueError unless kernel_size, stride, dilation >= 1 and 0 <= padding <= kernel_size / 2,
// and for windows or strides of 2^60 cells or more. Both are differentiable any number of times. Their
// gradients gather, so they give the same bits every time.

namespace vox {

struct MaxPool3dOptions {
  Triple kernel_size = 1;
  OptionalTriple stride = {};  ///< kernel_size if not given
  Triple padding = 0, dilation = 1;
  bool ceil_mode = false;
};
struct AvgPool3dOptions {
  Triple kernel_size = 1;
  OptionalTriple stride = {};  ///< kernel_size if not given
  Triple padding = 0;
  bool ceil_mode = false, count_include_pad = true;
};

/// Maximum of each window; NaN if the window holds one. The gradient goes to the first maximum in row-major
/// order or, as in PyTorch, to the last NaN. A window that covers no cell, which only dilation can cause,
/// gives -infinity and passes no gradient. If a window holds +0 and -0, the result may be either.
Tensor max_pool3d(const Tensor& input, const MaxPool3dOptions& options);

/// Mean of each window: the sum over its cells, divided by their number. With count_include_pad, covered
/// padding counts as cells too, but positions beyond the padding, which ceil_mode can cover, do not. The
/// kernel must not be larger than the input with its padding, even in ceil_mode.
Tensor avg_pool3d(const Tensor& input, const AvgPool3dOptions& options);

namespace detail {
/// Throws, naming `function`, what these options cause for every input.
void check_options(const char* function, const MaxPool3dOptions& options);
void check_options(const char* function, const AvgPool3dOptions& options);
}  // namespace detail

}  // namespace vox

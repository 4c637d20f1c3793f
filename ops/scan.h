#pragma once

#include <voxgrad/core/tensor.h>

// Cumulative sums and products along `dim`, of x's shape: of floating dtypes, differentiable any number of
// times; i64, u8 and bool give an i64, which wraps around. bf16 and f16 are computed in f32 and rounded once.
// The CPU goes in order. CUDA joins fixed groups of neighbours; one whose product overflows turns a 0 to NaN.

namespace vox {

Tensor cumsum(const Tensor& x, Int dim);   ///< y_k = x_0 + ... + x_k
Tensor cumprod(const Tensor& x, Int dim);  ///< y_k = x_0 * ... * x_k; the gradients are exact for zeros too

}  // namespace vox

#pragma once

#include <voxgrad/core/tensor.h>

// Reductions. `dims` are the dimensions to reduce, all of them if empty; with keepdim they stay with size 1.
// The order of the additions is fixed by shape and logical index: neither strides nor threads change a bit.

namespace vox {

/// Sum; of i64, u8 and bool in i64. An empty sum is 0. Gradient: g, expanded.
Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Mean, floating dtypes only; of nothing NaN.
Tensor mean(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Largest / smallest element; NaN wins; refuses to reduce nothing. Ties share the gradient equally.
Tensor max(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor min(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// First index (i64) of the largest / smallest element within the reduced dimensions, counted in row-major
/// order over them; NaN wins.
Tensor argmax(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, const Shape& dims = {}, bool keepdim = false);

/// Sums the dimensions that broadcasting from `shape` to x.shape() has expanded: the adjoint of expand().
Tensor sum_to(const Tensor& x, const Shape& shape);

/// exp(x) / sum(exp(x)) along one dimension, shifted by the maximum; and its logarithm. Floating dtypes.
Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);

}  // namespace vox

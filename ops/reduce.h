#pragma once

#include <voxgrad/core/tensor.h>

// Reductions. `dims` are the dimensions to reduce, all of them if empty; with keepdim they stay with size 1.
// ShapeError for a dim out of range or named twice, and for more than 2^53 elements (of an expanded tensor).
// The order of the additions is fixed by shape and strides, and threads change no bit. On CUDA it is that of
// the logical index, whatever the strides; on the CPU, where several dimensions of f32 or f64 are reduced,
// that of memory: the sums of a permuted tensor and of its dense copy may differ by rounding.

namespace vox {

/// Sum of any dtype; of i64, u8 and bool in i64, which wraps around. An empty sum is 0. Gradient: g,
/// expanded.
Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Mean, floating dtypes only; of nothing NaN. Gradient: g / count, expanded.
Tensor mean(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Largest / smallest element, any dtype; NaN wins. ShapeError where there is nothing to reduce. Elements
/// that tie share the gradient equally.
Tensor max(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor min(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// First index (i64) of the largest / smallest element within the reduced dimensions, counted in row-major
/// order over them; any dtype, NaN wins, ShapeError where there is nothing to reduce. Never differentiable.
Tensor argmax(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, const Shape& dims = {}, bool keepdim = false);

/// Sums the dimensions that broadcasting from `shape` to x.shape() has expanded: the adjoint of expand().
/// x itself if it has that shape; ShapeError if `shape` does not broadcast to x's.
Tensor sum_to(const Tensor& x, const Shape& shape);

/// exp(x) / sum(exp(x)) along one dimension, shifted by the maximum; and its logarithm. Floating dtypes.
/// A line that holds NaN or +inf, or nothing but -inf, gives NaN.
Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);

}  // namespace vox

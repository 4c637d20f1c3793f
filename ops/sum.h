#pragma once

#include <voxgrad/core/tensor.h>

// Reductions. `dims` are the dimensions to reduce, one integer or a list; empty means all. With keepdim they
// stay, with size 1. A tensor of rank 0 accepts 0 and -1. ShapeError for a dim out of range or named twice,
// and for more than 2^53 elements (of an expanded tensor). Shape and strides fix the order of the additions;
// threads change no bit. On CUDA it is the logical order, whatever the strides. On the CPU, where several
// dimensions of f32 or f64 are reduced, it is the order of memory: the sums of a permuted tensor and of its
// dense copy may differ by rounding.

namespace vox {

/// Sum of any dtype. i64, u8 and bool are summed in i64, which wraps around. An empty sum is 0. Gradient: g,
/// expanded.
Tensor sum(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
/// Mean, floating dtypes only; NaN if there are no elements. Gradient: g / count, expanded.
Tensor mean(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);

/// Sums the dimensions that broadcasting from `shape` to x.shape() expands: the adjoint of expand(). Returns
/// x itself if it has that shape. ShapeError if `shape` does not broadcast to x's.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace vox

#pragma once

#include <vector>

#include <voxgrad/core/tensor.h>

// Ops that move elements without computing: the copies beside the views of Tensor.

namespace vox {

/// Joins tensors along `dim`; all other sizes, dtypes and devices are equal. Gradient: the slices of g.
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
/// The same along a new dimension.
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);

/// Pads with `value`. `padding` lists (before, after) from the LAST dimension backwards, as
/// torch.nn.functional.pad; entries are >= 0. Gradient: the slice of g.
Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, Scalar value = 0);

/// Rows `indices` (i64, one dimension, each in [0, size)) of dimension `dim`. Its gradient adds rows that
/// were taken more than once, in the order of `indices`.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& indices);

}  // namespace vox

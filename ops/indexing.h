#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>

// Elements by index. `index` is an i64 tensor on x's device, with x's rank, and with sizes of at most x's
// along every dimension except `dim`. With dim = 1 and three dimensions, place (i, j, k) of `index` means the
// element (i, index[i][j][k], k) of x. A tensor of rank 0 counts as one of shape (1).
//
// An index outside [0, x.size(dim)) throws ShapeError. On CUDA this check waits for the indices. It cannot
// wait while a CUDA graph is captured: then such an index reads as NaN (0 in other dtypes), is not written,
// and never touches memory outside x. Other shapes throw ShapeError, other dtypes of `index` DTypeError.
// Floating dtypes are differentiable any number of times.

namespace vox {

/// y[i][j][k] = x[i][index[i][j][k]][k], of index's shape. Any dtype. The gradient adds up the elements that
/// were taken more than once, in the order of the index along `dim`, without atomics, so it gives the same
/// bits every time.
Tensor gather(const Tensor& x, Int dim, const Tensor& index);

/// x with src[i][j][k] written to place (i, index[i][j][k], k). Where an element is named more than once, the
/// last place along `dim` gives its value and gets its gradient. `src` has x's dtype, and along every
/// dimension at least the size of `index`. Any dtype.
Tensor scatter(const Tensor& x, Int dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, Int dim, const Tensor& index, Scalar value);

/// The same with src[i][j][k] added: x plus the sum of the elements of src with its index, which are added in
/// the order of the index along `dim`. Any dtype except bool.
Tensor scatter_add(const Tensor& x, Int dim, const Tensor& index, const Tensor& src);

/// Row indices[i, ...] of `weight` (rows, features): a tensor of shape (..., features). Indices (i64) have
/// any shape of up to 7 dimensions. The row padding_idx, if given, counted from the end if negative, gets no
/// gradient.
Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<Int> padding_idx = {});

/// The places of the elements that are not 0, in row-major order: an i64 tensor (count, rank). Any dtype. It
/// waits for the count. Not differentiable.
Tensor nonzero(const Tensor& x);

namespace detail {
/// vox::gather for indices that have been checked.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
}  // namespace detail

}  // namespace vox

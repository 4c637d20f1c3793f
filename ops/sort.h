#pragma once

#include <optional>

#include <voxgrad/ops/reduce.h>

// Order along a dimension. A NaN is larger than all numbers. Equal elements stay in the order of their index.
// Any dtype, unless said otherwise. Values are gathered by index, so their gradient is scattered back.
// ShapeError for a `dim` that x does not have. A tensor of rank 0 has dims 0 and -1.

namespace vox {

/// The elements along `dim` in ascending or descending order, and their indices (i64). Always stable.
ValuesAndIndices sort(const Tensor& x, Int dim = -1, Flag descending = false);
Tensor argsort(const Tensor& x, Int dim = -1, Flag descending = false);  ///< the indices of sort()

/// The k largest or smallest elements along `dim`, in order, and their indices. ShapeError unless 0 <= k <=
/// x.size(dim).
ValuesAndIndices topk(const Tensor& x, Int k, Int dim = -1, Flag largest = true);

/// The element in the middle of the order along `dim`, the lower one of two, and its index; NaN if there is
/// one. ShapeError if there are no elements. Without `dim`: of all elements, without the index.
ValuesAndIndices median(const Tensor& x, Int dim, Flag keepdim = false);
Tensor median(const Tensor& x);

/// The value at q * (n - 1) of the n elements along `dim` in ascending order, between two of them in
/// proportion; NaN if there is one. Floating dtypes. ValueError unless 0 <= q <= 1, ShapeError if there are
/// no elements. Without `dim`: of all elements.
Tensor quantile(const Tensor& x, Real q, std::optional<Int> dim = {}, Flag keepdim = false);

}  // namespace vox

#pragma once

#include <voxgrad/core/tensor.h>

// The views of Tensor (slice, select, permute, transpose, expand, reshape, squeeze, unsqueeze, flatten) are
// member functions, declared in core/tensor.h; views.cpp holds them and their gradients.

namespace vox::detail {

/// Which elements of one dimension a slice takes: start, start + step, ..., `size` of them.
struct SliceRange {
  int64_t dim, start, size, step;
};

/// The adjoint of slice: zeros of `shape` with `g` written where the slice was taken. Recorded; its own
/// gradient is the slice again.
Tensor slice_adjoint(const Tensor& g, const Shape& shape, SliceRange range);

}  // namespace vox::detail

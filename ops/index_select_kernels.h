#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/strided.h>

// Private: index_select's recorded maps and kernels. x is (outer, size, inner), y is (outer, indices, inner)
// around dimension `dim`. Tensors are dense, except that index_select and check_indices read any strides.

namespace vox {

namespace detail {
/// How the elements of x that belong to one index lie: (outer, inner).
inline StridedLayout<1> slice_layout(const Tensor& x, int64_t dim) {
  Shape shape = x.shape();
  shape[dim] = 1;
  return strided_layout(alias(x, x.impl()->offset, shape, x.strides()));
}

/// The linear maps, for indices that have been checked; both recorded, each the gradient of the other.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& indices);
Tensor index_add(const Tensor& y, int64_t dim, const Tensor& indices, int64_t size);
}  // namespace detail

// check_indices: throws ShapeError unless every index is in [0, size). On CUDA it waits for the indices, and
//   lets everything pass while the stream is being captured.
// index_select: y[.., k, ..] = x[.., indices[k], ..]; NaN, or 0 in other dtypes, for an index outside x.
// index_add: x[.., i, ..] = the sum of y[.., k, ..] over the k with indices[k] == i, by rising k. Floating.

namespace cpu {
void check_indices(const Tensor& indices, int64_t size);
void index_select(const Tensor& x, int64_t dim, const Tensor& indices, Tensor& y);
void index_add(const Tensor& y, int64_t dim, const Tensor& indices, Tensor& x);
}  // namespace cpu
namespace cuda {
void check_indices(const Tensor& indices, int64_t size);
void index_select(const Tensor& x, int64_t dim, const Tensor& indices, Tensor& y);
void index_add(const Tensor& y, int64_t dim, const Tensor& indices, Tensor& x);
}  // namespace cuda

}  // namespace vox

#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/pool3d_window.h>

// Private: the recorded maps that pooling is made of, and its kernels. x has `cells` elements a plane, y and
// `indices` (i64: cell within the plane, -1 for none) have `windows`.
//
//   max_pool3d          y = x at the first maximum or last NaN; then linear in x for fixed indices:
//   max_pool3d_take     y[window] = x[indices[window]]
//   max_pool3d_give     its adjoint: x[cell] = sum of y over the windows with this index
//   avg_pool3d, avg_pool3d_adjoint     linear

namespace vox {

namespace detail {
Tensor max_pool3d_take(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry);
Tensor max_pool3d_give(const Tensor& y, const Tensor& indices, const Pool3dGeometry& geometry);
Tensor avg_pool3d(const Tensor& x, const Pool3dGeometry& geometry);
Tensor avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& geometry);
}  // namespace detail

// ---- Kernels: tensors dense, floating; the number of planes follows from the last argument's size ---------
// max_pool3d leaves the indices out if they are undefined. On the CPU the x of max_pool3d and avg_pool3d, (N,
// C, D, H, W) or (C, D, H, W), may have any strides.

namespace cpu {
void max_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y, Tensor& indices);
void max_pool3d_take(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& y);
void max_pool3d_give(const Tensor& y, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& x);
void avg_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y);
void avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& geometry, Tensor& x);
}  // namespace cpu
namespace cuda {
void max_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y, Tensor& indices);
void max_pool3d_take(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& y);
void max_pool3d_give(const Tensor& y, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& x);
void avg_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y);
void avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& geometry, Tensor& x);
}  // namespace cuda

}  // namespace vox

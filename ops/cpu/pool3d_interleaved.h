#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/pool3d_window.h>

// Pooling of tensors whose planes are interleaved: the same cell of several planes lies side by side, as in
// (N, D, H, W, C) or with all dimensions reversed. What a vector holds is planes, so nothing is shuffled, and
// each window reads its cells where they are, in whatever order the axes have in memory.

namespace vox::cpu {

/// Whether x, (N, C, D, H, W) or (C, D, H, W) of f32 or f64, is of that kind.
bool is_interleaved(const Tensor& x);

/// Whether lists of the cells of all windows along an axis, which maxima of such an x go by, are short
/// (windows of half an axis of 64,000 would be 8 GB).
bool windows_are_short(const Pool3dGeometry& geometry);

/// For such an x: the results of max_pool3d, without indices, and of avg_pool3d.
void max_pool3d_interleaved(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y);
void avg_pool3d_interleaved(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y);

}  // namespace vox::cpu

#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/pool3d_window.h>

// Pooling of tensors whose planes are interleaved: the same cell of several planes lies side by side, as in
// (N, D, H, W, C) or with all dimensions reversed. A vector holds several planes, so nothing is shuffled, and
// each window reads its cells where they are, in any order of axes.

namespace vox::cpu {

/// Whether x, (N, C, D, H, W) or (C, D, H, W) of f32 or f64, is interleaved.
bool is_interleaved(const Tensor& x);

/// Whether the lists of the cells of all windows along an axis, which max_pool3d_interleaved() makes, are
/// short. Windows of half an axis of 64,000 need 8 GB.
bool windows_are_short(const Pool3dGeometry& geometry);

/// The results of max_pool3d, without indices, and of avg_pool3d, for an interleaved x. Not
/// for adaptive windows.
void max_pool3d_interleaved(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y);
void avg_pool3d_interleaved(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y);

}  // namespace vox::cpu

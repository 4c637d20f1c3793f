#pragma once

#include <voxgrad/ops/kernels.h>

// Interpolation and its adjoint for tensors whose planes lie side by side, without a dense copy.

namespace vox::cpu {

/// Returns false, and does nothing, if it is better to copy x first. That is so if x has too few planes side
/// by side, has gaps within its rows, or is smaller than the result, which is transposed here.
bool interpolate_interleaved(const Tensor& x, const std::vector<int64_t>& order, const InterpolateAxes& axes,
                             Tensor& y);
bool interpolate_interleaved_adjoint(const Tensor& grad_y, const std::vector<int64_t>& order,
                                     const InterpolateAxes& axes, Tensor& grad_x);

}  // namespace vox::cpu

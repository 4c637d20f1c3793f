#pragma once

#include <voxgrad/ops/kernels.h>

// Interpolation, and its adjoint, of a tensor whose planes lie side by side: without a dense copy of it.

namespace vox::cpu {

/// False, and nothing done, if x is better copied first: it has too few planes side by side, or gaps within
/// its rows, or is smaller than the result (which is transposed here).
bool interpolate_interleaved(const Tensor& x, const std::vector<int64_t>& order, const InterpolateAxes& axes,
                             Tensor& y);
bool interpolate_interleaved_adjoint(const Tensor& grad_y, const std::vector<int64_t>& order,
                                     const InterpolateAxes& axes, Tensor& grad_x);

}  // namespace vox::cpu

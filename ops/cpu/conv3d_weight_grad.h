#pragma once

#include <voxgrad/ops/conv3d_geometry.h>

namespace vox::cpu {

/// dweight = sum over n, i of small * big, in arithmetic of type T. False, and nothing done, if it cannot be
/// had by tiles: they would be too large, or an operand is not finite (a zero of the padding times infinity
/// would be NaN where the definition has no product at all; dweight may then have been written).
template <class S, class T>
bool weight_grad_by_tiles(const S* big, const S* small, S* dweight, const Conv3dGeometry& g);

}  // namespace vox::cpu

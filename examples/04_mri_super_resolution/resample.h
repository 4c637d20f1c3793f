// The degradation that the network learns to undo, and the classical answer that it has to beat.
//
// Both are aligned by half voxels (`align_corners=false`): low-resolution voxel i covers high-resolution
// voxels 2i and 2i+1, so its centre lies between theirs.
#pragma once

#include "volume.h"

namespace mri {

/// Low resolution: each voxel is the mean of a 2x2x2 cell. Throws std::invalid_argument unless all sizes are
/// even.
Volume downsample(const Volume& high);

/// Trilinear interpolation to twice the size, with the edge voxels repeated beyond the edge: along each axis
/// `out[2i] = 0.25 in[i-1] + 0.75 in[i]` and `out[2i+1] = 0.75 in[i] + 0.25 in[i+1]`.
Volume upsample_trilinear(const Volume& low);

}  // namespace mri

// A head that needs no file: the analytic 3-D Shepp-Logan phantom.
#pragma once

#include "volume.h"

namespace mri {

/// The modified Shepp-Logan head, sampled on `size` voxels over the cube [-1, 1]^3. Each voxel is the mean of
/// 2x2x2 points in it, so that surfaces have the partial volumes that a scanner sees. Intensities lie in
/// 0..1. Throws std::invalid_argument unless all sizes are positive.
Volume shepp_logan(Size size);

}  // namespace mri

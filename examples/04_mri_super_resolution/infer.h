// The trained network at work on a whole head.
#pragma once

#include "network.h"
#include "split.h"
#include "volume.h"

namespace mri {

/// Doubles the resolution of the planes `range` of `low` (all other axes whole), in tiles of a few planes,
/// each computed with the neighbours that the network sees. The result equals that of the whole volume in one
/// piece.
Volume super_resolve(SuperResolution& network, const Volume& low, Range range, vox::Device device);

/// All planes.
Volume super_resolve(SuperResolution& network, const Volume& low, vox::Device device);

}  // namespace mri

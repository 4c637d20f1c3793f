// Bringing intensities of any scanner to the range 0..1.
#pragma once

#include "nifti.h"
#include "volume.h"

namespace mri {

/// The value below which `percent` of the voxels lie, linearly interpolated between ranks (NumPy's default).
/// Throws std::invalid_argument for an empty volume or a percentage outside 0..100.
float percentile(const Volume& volume, double percent);

/// Unscaled bytes are divided by 255; any other scan is mapped so that its 0.5 and 99.5 percentiles become 0
/// and 1, and clipped there. Throws std::invalid_argument if the two percentiles coincide.
Volume normalise(const Scan& scan);

}  // namespace mri

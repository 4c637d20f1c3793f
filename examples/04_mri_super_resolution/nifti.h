// Reading head scans: NIfTI-1 and NIfTI-2 files through the NIfTI C library, with every claim of the header
// checked before the library may act on it.
#pragma once

#include <string>

#include "volume.h"

namespace mri {

/// A scan as stored: real-world values (`scl_slope * stored + scl_inter`), not yet normalised.
struct Scan {
  Volume volume;
  bool is_uint8 = false;  ///< Stored as unscaled bytes, so that 255 is the natural white.
};

/// Reads a single-file NIfTI image (`.nii` or `.nii.gz`) of 3 dimensions, or more if the others are 1, and
/// turns its axes to the anatomical order that `Volume` documents. Voxel types: 8- to 64-bit integers,
/// float32, float64. Voxels that are not finite become 0.
///
/// Throws std::runtime_error that names the file and the reason if it is missing, not NIfTI, not 3-D, of
/// another type, truncated or corrupt. A header that claims more voxels than the file holds is refused before
/// memory is taken for them, by counting the bytes that really come out of the file.
Scan read_nifti(const std::string& path);

}  // namespace mri

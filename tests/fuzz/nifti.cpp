// mri::read_nifti on any bytes: it refuses them with a std::runtime_error, or returns as many finite voxels
// as it says.
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "tests/fuzz/scratch.h"
#include "volume.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const vox::testing::ScratchFolder folder;
  const bool packed = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;  // gzip's first bytes
  const std::string path = folder.write(packed ? "a.nii.gz" : "a.nii", data, size);
  try {
    const mri::Volume volume = mri::read_nifti(path).volume;
    if (volume.numel() <= 0 || volume.voxels.size() != static_cast<size_t>(volume.numel())) std::abort();
    for (const float voxel : volume.voxels) {
      if (!std::isfinite(voxel)) std::abort();
    }
    for (const double edge : volume.spacing) {
      if (!(edge > 0 && std::isfinite(edge))) std::abort();
    }
  } catch (const std::runtime_error&) {
  }
  return 0;
}

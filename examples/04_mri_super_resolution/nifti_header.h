// What a NIfTI header claims, and whether the file can keep it.
#pragma once

#include <cstdint>
#include <string>

namespace mri {

/// Checks the header of `path` and the length of its (unpacked) contents.
///
/// The NIfTI library repairs or prints about some bad headers, and believes sizes before it has seen the
/// voxels, so this check goes first; what passes it the library reads without complaint. Throws
/// std::runtime_error with a reason.
void check_nifti_file(const std::string& path);

}  // namespace mri

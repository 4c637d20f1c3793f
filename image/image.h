#pragma once

#include <array>
#include <filesystem>

#include <voxgrad/core/tensor.h>

// Scans with their place in space, in the file formats of medical imaging. This is the library
// voxgrad::image, of which voxgrad.h includes nothing.
namespace vox {

/// A scan. The centre of voxel (d, h, w) is at
///
///     origin + d * spacing[0] * direction[0] + h * spacing[1] * direction[1] + w * spacing[2] * direction[2]
///
/// in mm, where x runs to the subject's left, y to the back and z to the head (LPS, as in DICOM and ITK;
/// NIfTI's x and y run the other way, which reading and writing take care of). So data and spacing are in the
/// order of SimpleITK's arrays and of nnU-Net, the points x, y, z; direction is SimpleITK's matrix with its
/// columns as rows, the last one first.
struct Image {
  using Vector = std::array<double, 3>;

  Tensor data;                                                         ///< (D, H, W) or (C, D, H, W)
  Vector spacing{1, 1, 1};                                             ///< mm between voxels along D, H, W
  Vector origin{0, 0, 0};                                              ///< x, y, z of the first voxel
  std::array<Vector, 3> direction{{{0, 0, 1}, {0, 1, 0}, {1, 0, 0}}};  ///< unit vectors along D, H, W
};

struct ReadImageOptions {
  detail::ByName by_name{};
  bool keep_dtype = false;
};

/// Reads a file whose name ends in
///
///     .nii, .nii.gz    NIfTI-1 and NIfTI-2 in one file; volumes of time or of a vector are channels
///     .mha, .mhd       MetaImage: binary, plain or zlib
///     .nrrd, .nhdr     NRRD: raw or gzip
///
/// The data of a .mhd or .nhdr are in one file beside it, in the same folder. The geometry of NIfTI is
/// ITK's: spacing is the header's voxel size, direction and origin are the sform's, else the qform's, else
/// those above.
///
/// An image of 2 dimensions becomes (1, H, W), one channel none. Voxels keep their values: u8, f32 and f64
/// are stored as such, integers of 8 signed or 16 bits become f32, larger ones i64. With `keep_dtype`, i16,
/// u16 and i32 are stored as such too (ops move these, but do not compute in them), and i8 as i16. If a NIfTI
/// file has a slope and an intercept, they are applied, and the result is f32 (f64 for f64).
///
/// Throws IoError with the file and the reason if it is missing, of another kind, damaged or truncated. No
/// memory is allocated for voxels that a file of this size cannot hold.
Image read_image(const std::filesystem::path& path, const ReadImageOptions& options = {});

/// Writes a file, by the ending of its name: .nii (NIfTI-1, or NIfTI-2 if a size is above 32767), .nii.gz,
/// .mha (plain) or .nrrd (gzip). It appears complete or not at all. bool is stored as u8. Read again, the
/// image is the same: data bit by bit; geometry too, except that NIfTI-1 has f32 for it and that NRRD stores
/// spacing * direction.
///
/// Throws ValueError for other endings, for spacings that are not positive, and unless the directions are
/// unit vectors of which none lies in the plane of the others; ShapeError for data of other ranks or without
/// voxels; DTypeError for bf16 and f16; IoError if the file cannot be written.
void write_image(const std::filesystem::path& path, const Image& image);

/// The same scan with its axes swapped and mirrored so that D runs most nearly from foot to head, H from back
/// to front and W from the subject's left to right (RAS, as nibabel.as_closest_canonical). No voxel is
/// interpolated.
Image closest_canonical(const Image& image);

}  // namespace vox

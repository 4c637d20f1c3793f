#include "nifti.h"

#include <nifti2_io.h>

#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "nifti_header.h"

namespace mri {
namespace {

using Image = std::unique_ptr<nifti_image, decltype(&nifti_image_free)>;

// For each anatomical axis (D, H, W): which axis of the file runs along it (0 = x, fastest), and whether
// backwards.
struct Orientation {
  std::array<int, 3> file_axis{2, 1, 0};
  std::array<bool, 3> reversed{false, false, false};
};

Orientation orientation_of(const nifti_image& image) {
  if (image.sform_code <= 0 && image.qform_code <= 0) return {};  // the file does not say: take it as it lies
  int code[3] = {0, 0, 0};
  nifti_dmat44_to_orientation(image.sform_code > 0 ? image.sto_xyz : image.qto_xyz, &code[0], &code[1],
                              &code[2]);
  Orientation found;
  std::array<bool, 3> seen{};
  for (int axis = 0; axis < 3; ++axis) {
    int anatomical = -1;
    if (code[axis] == NIFTI_I2S || code[axis] == NIFTI_S2I) anatomical = 0;
    if (code[axis] == NIFTI_P2A || code[axis] == NIFTI_A2P) anatomical = 1;
    if (code[axis] == NIFTI_L2R || code[axis] == NIFTI_R2L) anatomical = 2;
    if (anatomical < 0 || seen[anatomical]) return {};  // a singular matrix says nothing
    seen[anatomical] = true;
    found.file_axis[anatomical] = axis;
    found.reversed[anatomical] =
        code[axis] == NIFTI_S2I || code[axis] == NIFTI_A2P || code[axis] == NIFTI_R2L;
  }
  return found;
}

template <class Stored>
Volume to_volume(const nifti_image& image, double slope, double intercept) {
  const auto* stored = static_cast<const Stored*>(image.data);
  const std::array<int64_t, 3> extent{image.nx, image.ny, image.nz};
  const std::array<int64_t, 3> stride{1, image.nx, image.nx * image.ny};
  const std::array<double, 3> spacing{image.dx, image.dy, image.dz};
  const Orientation orientation = orientation_of(image);

  Size size{}, step{};
  int64_t origin = 0;
  std::array<double, 3> edges{};
  for (int axis = 0; axis < 3; ++axis) {
    const int from = orientation.file_axis[axis];
    size[axis] = extent[from];
    step[axis] = orientation.reversed[axis] ? -stride[from] : stride[from];
    if (orientation.reversed[axis]) origin += stride[from] * (extent[from] - 1);
    const double edge = std::abs(spacing[from]);
    edges[axis] = edge > 0 && std::isfinite(edge) ? edge : 1;
  }
  Volume volume(size);
  volume.spacing = edges;
  size_t next = 0;
  for (int64_t d = 0; d < size[0]; ++d) {
    for (int64_t h = 0; h < size[1]; ++h) {
      for (int64_t w = 0; w < size[2]; ++w) {
        const auto raw = static_cast<double>(stored[origin + d * step[0] + h * step[1] + w * step[2]]);
        const auto value = static_cast<float>(raw * slope + intercept);
        volume.voxels[next++] = std::isfinite(value) ? value : 0.0f;
      }
    }
  }
  return volume;
}

}  // namespace

Scan read_nifti(const std::string& path) {
  nifti_set_debug_level(0);  // failures are reported here, once, and not on stderr by the library too
  check_nifti_file(path);
  const Image image(nifti_image_read(path.c_str(), /*read_data=*/1), &nifti_image_free);
  if (!image || !image->data) throw std::runtime_error("read_nifti: " + path + ": cannot read the voxels");

  // The standard: slope 0 means that no scaling was stored.
  const bool scaled =
      image->scl_slope != 0 && std::isfinite(image->scl_slope) && std::isfinite(image->scl_inter);
  const double slope = scaled ? image->scl_slope : 1;
  const double intercept = scaled ? image->scl_inter : 0;
  switch (image->datatype) {
    case DT_UINT8:
      return {to_volume<uint8_t>(*image, slope, intercept), slope == 1 && intercept == 0};
    case DT_INT8:
      return {to_volume<int8_t>(*image, slope, intercept)};
    case DT_UINT16:
      return {to_volume<uint16_t>(*image, slope, intercept)};
    case DT_INT16:
      return {to_volume<int16_t>(*image, slope, intercept)};
    case DT_UINT32:
      return {to_volume<uint32_t>(*image, slope, intercept)};
    case DT_INT32:
      return {to_volume<int32_t>(*image, slope, intercept)};
    case DT_UINT64:
      return {to_volume<uint64_t>(*image, slope, intercept)};
    case DT_INT64:
      return {to_volume<int64_t>(*image, slope, intercept)};
    case DT_FLOAT32:
      return {to_volume<float>(*image, slope, intercept)};
    case DT_FLOAT64:
      return {to_volume<double>(*image, slope, intercept)};
    default:
      throw std::runtime_error("read_nifti: " + path + ": voxel type " +
                               nifti_datatype_string(image->datatype) +
                               " is not scalar; 8- to 64-bit integers, float32 and float64 are read");
  }
}

}  // namespace mri

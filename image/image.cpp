#include <voxgrad/core/print.h>
#include <voxgrad/image/image.h>
#include <voxgrad/ops/shaping.h>

#include <cmath>
#include <utility>

#include "voxels.h"

namespace vox {

using Vector = Image::Vector;

namespace detail {

std::string fault_of_geometry(const Image& image) {
  const auto& [a, b, c] = image.direction;
  const double volume = a[0] * (b[1] * c[2] - b[2] * c[1]) + a[1] * (b[2] * c[0] - b[0] * c[2]) +
                        a[2] * (b[0] * c[1] - b[1] * c[0]);
  for (size_t axis = 0; axis < 3; ++axis) {
    const Vector& v = image.direction[axis];
    const double length = std::hypot(v[0], v[1], v[2]), spacing = image.spacing[axis];
    if (!(spacing > 0 && std::isfinite(spacing))) return str("spacing must be positive, got ", spacing);
    if (!std::isfinite(image.origin[axis])) return str("origin must be finite, got ", image.origin[axis]);
    if (!(std::abs(length - 1) < 1e-3)) return str("directions must have length 1, got ", length);
  }
  return std::abs(volume) < 1e-3 ? "directions must not lie in a plane" : "";
}

namespace {

enum class Kind { nifti, nifti_gz, metaimage, nrrd };

Kind kind_of(const char* function, const std::filesystem::path& path, bool write) {
  const std::string name = path.string();
  if (name.ends_with(".nii")) return Kind::nifti;
  if (name.ends_with(".nii.gz")) return Kind::nifti_gz;
  if (name.ends_with(".mha") || (!write && name.ends_with(".mhd"))) return Kind::metaimage;
  if (name.ends_with(".nrrd") || (!write && name.ends_with(".nhdr"))) return Kind::nrrd;
  const std::string message = str(function, ": ", name, ": the name must end in .nii, .nii.gz, .mha",
                                  write ? " or .nrrd" : ", .mhd, .nrrd or .nhdr (dcm2niix converts DICOM)");
  if (write) throw ValueError(message);
  throw IoError(message);
}

}  // namespace
}  // namespace detail

Image read_image(const std::filesystem::path& path, const ReadImageOptions& options) {
  using detail::Kind;
  const Kind kind = detail::kind_of("read_image", path, false);
  const Image image = kind == Kind::metaimage ? detail::read_metaimage(path, options.keep_dtype)
                      : kind == Kind::nrrd
                          ? detail::read_nrrd(path, options.keep_dtype)
                          : detail::read_nifti(path, kind == Kind::nifti_gz, options.keep_dtype);
  const std::string fault = detail::fault_of_geometry(image);
  check<IoError>(fault.empty(), "read_image: ", path.string(), ": ", fault);
  return image;
}

void write_image(const std::filesystem::path& path, const Image& image) {
  using detail::Kind;
  const Kind kind = detail::kind_of("write_image", path, true);
  detail::check_defined("write_image", "data", image.data);
  check<ShapeError>((image.data.rank() == 3 || image.data.rank() == 4) && image.data.numel() > 0,
                    "write_image: data must be (D, H, W) or (C, D, H, W), got ", image.data.shape());
  detail::stored_as(image.data.dtype());
  const std::string fault = detail::fault_of_geometry(image);
  check<ValueError>(fault.empty(), "write_image: ", fault);
  if (kind == Kind::metaimage) return detail::write_metaimage(path, image);
  if (kind == Kind::nrrd) return detail::write_nrrd(path, image);
  detail::write_nifti(path, image, kind == Kind::nifti_gz);
}

Image closest_canonical(const Image& image) {
  const int64_t channels = image.data.rank() - 3;
  // For each axis of the result, the axis of `image` with the largest share in it; the clearest pair first.
  std::array<int, 3> from{-1, -1, -1};
  for (int pairs = 0; pairs < 3; ++pairs) {
    double largest = -1;
    std::pair<int, int> best;
    for (int axis = 0; axis < 3; ++axis) {
      for (int old = 0; old < 3; ++old) {
        const double share = std::abs(image.direction[old][2 - axis]);
        const bool taken = from[axis] >= 0 || from[0] == old || from[1] == old || from[2] == old;
        if (!taken && share > largest) largest = share, best = {axis, old};
      }
    }
    from[best.first] = best.second;
  }

  Image result = image;
  Shape order, flipped;
  for (int64_t i = 0; i < channels; ++i) order.push_back(i);
  for (int axis = 0; axis < 3; ++axis) {
    const int old = from[axis];
    order.push_back(channels + old);
    result.spacing[axis] = image.spacing[old];
    result.direction[axis] = image.direction[old];
    const double towards = axis == 0 ? 1 : -1;  // head, front, right
    if (towards * image.direction[old][2 - axis] >= 0) continue;
    flipped.push_back(channels + axis);
    const double length = image.spacing[old] * static_cast<double>(image.data.size(channels + old) - 1);
    for (int k = 0; k < 3; ++k) {
      result.origin[k] += length * image.direction[old][k];
      result.direction[axis][k] = -image.direction[old][k];
    }
  }
  result.data = image.data.permute(order);
  if (!flipped.empty()) result.data = flip(result.data, flipped);
  result.data = result.data.contiguous();
  return result;
}

}  // namespace vox

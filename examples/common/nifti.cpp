// Reading head scans: NIfTI-1 and NIfTI-2 files through the NIfTI C library.
//
// The first half checks that the header is sound and that the file holds the voxels that it promises. Without
// this check, the library would repair some bad headers, print messages about others, and allocate memory
// before it reads the voxels. The second half turns voxels of any type and orientation into a Volume.
#include <nifti2_io.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "volume.h"

namespace mri {
namespace {

// More than any scanner makes. The limit also keeps products of sizes from overflowing.
constexpr int64_t kMaxVoxels = int64_t{1} << 30;

struct CloseFile {
  void operator()(znzFile file) const { znzclose(file); }
};
using File = std::unique_ptr<znzptr, CloseFile>;

// The few header fields that matter here, from either version of the format and either byte order.
struct Claim {
  int64_t dim[8];
  int datatype;
  double voxel_offset;
};

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw std::runtime_error("read_nifti: " + path + ": " + reason);
}

File open(const std::string& path) {
  // The library decides by the name whether to unpack. So we do the same, to count the bytes that it will
  // read.
  File file(znzopen(path.c_str(), "rb", nifti_is_gzfile(path.c_str())));
  if (!file) refuse(path, "cannot open the file");
  return file;
}

// Reads up to `count` bytes. For a damaged gzip stream the library returns -1, as an unsigned number.
size_t read(const File& file, void* buffer, size_t count, const std::string& path) {
  const size_t got = znzread(buffer, 1, count, file.get());
  if (got > count) refuse(path, "corrupt gzip data");
  return got;
}

template <class Header>
Claim claim_of(Header header, int version) {
  if (header.sizeof_hdr != static_cast<int>(sizeof(Header))) swap_nifti_header(&header, version);
  Claim claim{{}, header.datatype, static_cast<double>(header.vox_offset)};
  for (int i = 0; i < 8; ++i) claim.dim[i] = header.dim[i];
  return claim;
}

Claim read_claim(const std::string& path) {
  const File file = open(path);
  nifti_1_header first;
  if (read(file, &first, sizeof first, path) < sizeof first) {
    refuse(path, "too short for a NIfTI header (" + std::to_string(sizeof first) + " bytes)");
  }
  const int version = nifti_header_version(reinterpret_cast<const char*>(&first), sizeof first);
  if (version == 1 && NIFTI_ONEFILE(first)) return claim_of(first, 1);
  if (version != 2) refuse(path, "not a single-file NIfTI image (magic number n+1 or n+2)");

  nifti_2_header second;
  std::memcpy(&second, &first, sizeof first);
  const size_t rest = sizeof second - sizeof first;
  if (read(file, reinterpret_cast<char*>(&second) + sizeof first, rest, path) < rest) {
    refuse(path, "too short for a NIfTI-2 header (" + std::to_string(sizeof second) + " bytes)");
  }
  if (!NIFTI_ONEFILE(second)) refuse(path, "not a single-file NIfTI image (magic number n+1 or n+2)");
  return claim_of(second, 2);
}

// The bytes of voxels that the header promises.
int64_t claimed_bytes(const Claim& claim, const std::string& path) {
  if (claim.dim[0] < 1 || claim.dim[0] > 7)
    refuse(path, "dim[0] is " + std::to_string(claim.dim[0]) + ", not 1 to 7");
  std::string shape;
  int64_t voxels = 1;
  bool is_3d = claim.dim[0] >= 3;
  for (int i = 1; i <= claim.dim[0]; ++i) {
    shape += (i > 1 ? " x " : "") + std::to_string(claim.dim[i]);
    is_3d = is_3d && (i <= 3 ? claim.dim[i] > 1 : claim.dim[i] == 1);
  }
  if (!is_3d)
    refuse(path, "not a 3-D image: its sizes are " + shape + ", three must be above 1 and the others 1");
  for (int i = 1; i <= 3; ++i) {
    if (claim.dim[i] > kMaxVoxels / voxels) refuse(path, shape + " voxels are more than the limit of 2^30");
    voxels *= claim.dim[i];
  }
  int bytes_per_voxel = 0, swap_size = 0;
  nifti_datatype_sizes(claim.datatype, &bytes_per_voxel, &swap_size);
  if (bytes_per_voxel == 0) refuse(path, "unknown voxel type " + std::to_string(claim.datatype));
  return voxels * bytes_per_voxel;
}

// Counts the unpacked bytes of the file, up to one more than `enough`. Asking for that byte makes zlib reach
// the end of a file of the right length, where it verifies the checksum.
int64_t count_bytes(const std::string& path, int64_t enough) {
  File file = open(path);
  std::vector<char> buffer(1 << 18);
  int64_t total = 0;
  while (total <= enough) {
    const size_t got = read(file, buffer.data(), buffer.size(), path);
    if (got == 0) break;
    total += static_cast<int64_t>(got);
  }
  znzFile closing = file.release();
  if (znzclose(closing) != 0) refuse(path, "truncated gzip data");  // zlib reports a missing end only here
  return total;
}

// Throws std::runtime_error with a reason unless the header is sound and the file holds its voxels.
void check_nifti_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) refuse(path, "no such file");
  if (!std::filesystem::is_regular_file(path, error)) refuse(path, "not a regular file");
  if (!path.ends_with(".nii") && !path.ends_with(".nii.gz"))
    refuse(path, "the name must end in .nii or .nii.gz");

  const Claim claim = read_claim(path);
  const int64_t bytes = claimed_bytes(claim, path);
  // NaN fails this comparison too. 352 is the header and the four bytes behind it.
  if (!(claim.voxel_offset >= 352 && claim.voxel_offset <= 1 << 30))
    refuse(path, "vox_offset is out of range");
  const int64_t needed = static_cast<int64_t>(claim.voxel_offset) + bytes;
  const int64_t held = count_bytes(path, needed);
  if (held < needed) {
    refuse(path, "truncated: the header needs " + std::to_string(needed) + " bytes, the file holds " +
                     std::to_string(held));
  }
}

using Image = std::unique_ptr<nifti_image, decltype(&nifti_image_free)>;

// For each anatomical axis (D, H, W): which axis of the file runs along it (0 = x, fastest), and whether it
// runs backwards.
struct Orientation {
  std::array<int, 3> file_axis{2, 1, 0};
  std::array<bool, 3> reversed{false, false, false};
};

Orientation orientation_of(const nifti_image& image) {
  if (image.sform_code <= 0 && image.qform_code <= 0) return {};  // the file does not say: keep its order
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
  for_each_voxel(whole(size), [&](int64_t d, int64_t h, int64_t w) {
    const auto raw = static_cast<double>(stored[origin + d * step[0] + h * step[1] + w * step[2]]);
    const auto value = static_cast<float>(raw * slope + intercept);
    volume.voxels[next++] = std::isfinite(value) ? value : 0.0f;
  });
  return volume;
}

}  // namespace

Scan read_nifti(const std::string& path) {
  nifti_set_debug_level(0);  // failures are thrown from here; the library must not print them too
  check_nifti_file(path);
  const Image image(nifti_image_read(path.c_str(), /*read_data=*/1), &nifti_image_free);
  if (!image || !image->data) throw std::runtime_error("read_nifti: " + path + ": cannot read the voxels");

  // The standard: slope 0 means that no scaling was stored.
  const bool scaled =
      image->scl_slope != 0 && std::isfinite(image->scl_slope) && std::isfinite(image->scl_inter);
  const double slope = scaled ? image->scl_slope : 1;
  const double intercept = scaled ? image->scl_inter : 0;
  const std::pair<int, Volume (*)(const nifti_image&, double, double)> types[] = {
      {DT_UINT8, to_volume<uint8_t>},   {DT_INT8, to_volume<int8_t>},     {DT_UINT16, to_volume<uint16_t>},
      {DT_INT16, to_volume<int16_t>},   {DT_UINT32, to_volume<uint32_t>}, {DT_INT32, to_volume<int32_t>},
      {DT_UINT64, to_volume<uint64_t>}, {DT_INT64, to_volume<int64_t>},   {DT_FLOAT32, to_volume<float>},
      {DT_FLOAT64, to_volume<double>}};
  for (const auto& [type, convert] : types) {
    if (image->datatype != type) continue;
    return {convert(*image, slope, intercept), type == DT_UINT8 && slope == 1 && intercept == 0};
  }
  refuse(path, std::string("voxel type ") + nifti_datatype_string(image->datatype) +
                   " is not scalar; 8- to 64-bit integers, float32 and float64 are read");
}

}  // namespace mri

#include "nifti_header.h"

#include <nifti2_io.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

namespace mri {
namespace {

// More than any scanner makes; it also keeps every later product of sizes far from overflow.
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
  // The library decides by the name whether to unpack; so must we, to see the bytes that it will see.
  File file(znzopen(path.c_str(), "rb", nifti_is_gzfile(path.c_str())));
  if (!file) refuse(path, "cannot open the file");
  return file;
}

// Reads up to `count` bytes; the library's unsigned result carries -1 for a damaged gzip stream.
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

// Bytes of voxels that the header promises.
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

// Counts what comes out of the file, up to one byte more than `enough`: that byte makes zlib reach, and
// check, the checksum of a file that ends where it should.
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
  if (znzclose(closing) != 0) refuse(path, "truncated gzip data");  // zlib tells of a missing end only here
  return total;
}

}  // namespace

void check_nifti_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) refuse(path, "no such file");
  if (!std::filesystem::is_regular_file(path, error)) refuse(path, "not a regular file");
  if (!path.ends_with(".nii") && !path.ends_with(".nii.gz"))
    refuse(path, "the name must end in .nii or .nii.gz");

  const Claim claim = read_claim(path);
  const int64_t bytes = claimed_bytes(claim, path);
  // The comparison is written so that NaN fails it; 352 is the header and the four bytes behind it.
  if (!(claim.voxel_offset >= 352 && claim.voxel_offset <= 1 << 30))
    refuse(path, "vox_offset is out of range");
  const int64_t needed = static_cast<int64_t>(claim.voxel_offset) + bytes;
  const int64_t held = count_bytes(path, needed);
  if (held < needed) {
    refuse(path, "truncated: the header needs " + std::to_string(needed) + " bytes, the file holds " +
                     std::to_string(held));
  }
}

}  // namespace mri

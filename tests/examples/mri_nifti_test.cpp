// Reading valid NIfTI files, and refusing invalid ones.
#include <gtest/gtest.h>
#include <nifti2_io.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "tests/support/temporary_folder.h"
#include "volume.h"

namespace mri {
namespace {

namespace fs = std::filesystem;

class MriNifti : public ::testing::Test {
 protected:
  MriNifti() {
    header_.sizeof_hdr = 348;
    std::memcpy(header_.magic, "n+1", 4);
    header_.vox_offset = 352;
    const int16_t dim[8] = {3, 4, 3, 2, 1, 1, 1, 1};  // x, y, z
    std::memcpy(header_.dim, dim, sizeof dim);
    for (float& size : header_.pixdim) size = 1;
    header_.datatype = DT_UINT8;
    header_.bitpix = 8;
    voxels_.resize(24);
    for (int i = 0; i < 24; ++i) voxels_[i] = static_cast<char>(i);
  }

  template <class Header>
  std::string bytes_of(const Header& header) const {
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.resize(static_cast<size_t>(sizeof header + 4), '\0');
    return bytes + std::string(voxels_.begin(), voxels_.end());
  }
  std::string write(const std::string& name, const std::string& bytes, bool compress = false) const {
    const std::string path = (folder_ / name.c_str()).string();
    znzFile file = znzopen(path.c_str(), "wb", compress);
    znzwrite(bytes.data(), 1, bytes.size(), file);
    znzclose(file);
    return path;
  }
  template <class Value>
  void store(const std::vector<Value>& values, int16_t datatype) {
    voxels_.resize(values.size() * sizeof(Value));
    std::memcpy(voxels_.data(), values.data(), voxels_.size());
    header_.datatype = datatype;
    header_.bitpix = static_cast<int16_t>(8 * sizeof(Value));
  }
  // The reader's message, and nothing on stderr from the library.
  std::string refusal(const std::string& path) const {
    ::testing::internal::CaptureStderr();
    std::string message = "was read";
    try {
      read_nifti(path);
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << path;
    return message;
  }
  void expect_refused(const std::string& path, const std::string& reason) const {
    const std::string message = refusal(path);
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find(path), std::string::npos) << message;
  }

  vox::testing::TemporaryFolder folder_;
  nifti_1_header header_{};
  std::vector<char> voxels_;
};

TEST_F(MriNifti, ReadsBytesPlainAndCompressed) {
  for (const bool compress : {false, true}) {
    const Scan scan = read_nifti(write(compress ? "a.nii.gz" : "a.nii", bytes_of(header_), compress));
    EXPECT_TRUE(scan.is_uint8);
    EXPECT_EQ(scan.volume.size, (Size{2, 3, 4}));
    for (int i = 0; i < 24; ++i) EXPECT_EQ(scan.volume.voxels[i], i);
  }
}

TEST_F(MriNifti, ReadsEveryScalarType) {
  const auto check = [&]<class Value>(Value, int16_t datatype) {
    std::vector<Value> values(24);
    for (int i = 0; i < 24; ++i) values[i] = static_cast<Value>(i + 3);
    store(values, datatype);
    const Scan scan = read_nifti(write("t.nii", bytes_of(header_)));
    for (int i = 0; i < 24; ++i) EXPECT_EQ(scan.volume.voxels[i], i + 3) << datatype;
    EXPECT_EQ(scan.is_uint8, datatype == DT_UINT8);
  };
  check(uint8_t{}, DT_UINT8), check(int8_t{}, DT_INT8), check(uint16_t{}, DT_UINT16),
      check(int16_t{}, DT_INT16);
  check(uint32_t{}, DT_UINT32), check(int32_t{}, DT_INT32), check(uint64_t{}, DT_UINT64),
      check(int64_t{}, DT_INT64);
  check(float{}, DT_FLOAT32), check(double{}, DT_FLOAT64);
}

TEST_F(MriNifti, AppliesSlopeAndIntercept) {
  header_.scl_slope = 2;
  header_.scl_inter = -5;
  const Scan scan = read_nifti(write("s.nii", bytes_of(header_)));
  EXPECT_FALSE(scan.is_uint8);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(scan.volume.voxels[i], 2 * i - 5);
}

TEST_F(MriNifti, ReadsOtherByteOrder) {
  std::vector<int16_t> values(24);
  for (int i = 0; i < 24; ++i) values[i] = static_cast<int16_t>(1000 + i);
  for (int16_t& value : values) nifti_swap_2bytes(1, &value);
  store(values, DT_INT16);
  swap_nifti_header(&header_, 1);
  const Scan scan = read_nifti(write("swapped.nii", bytes_of(header_)));
  for (int i = 0; i < 24; ++i) EXPECT_EQ(scan.volume.voxels[i], 1000 + i);
}

TEST_F(MriNifti, ReadsNifti2AndFourDimensionsOfWhichOneIsTime) {
  nifti_2_header second{};
  second.sizeof_hdr = 540;
  std::memcpy(second.magic, "n+2\0\r\n\032\n", 8);
  second.datatype = DT_UINT8;
  second.bitpix = 8;
  second.vox_offset = 544;
  const int64_t dim[8] = {4, 4, 3, 2, 1, 1, 1, 1};
  std::memcpy(second.dim, dim, sizeof dim);
  const Scan scan = read_nifti(write("two.nii", bytes_of(second)));
  EXPECT_EQ(scan.volume.size, (Size{2, 3, 4}));
  EXPECT_EQ(scan.volume.at(1, 2, 3), 23);
}

TEST_F(MriNifti, TurnsAxesToAnatomicalOrder) {
  // File x runs from head to foot, y from left to right, z from front to back.
  header_.sform_code = 1;
  const float x[4] = {0, 1, 0, 0}, y[4] = {0, 0, -3, 0}, z[4] = {-2, 0, 0, 0};
  std::memcpy(header_.srow_x, x, sizeof x);
  std::memcpy(header_.srow_y, y, sizeof y);
  std::memcpy(header_.srow_z, z, sizeof z);
  const float pixdim[4] = {1, 2, 1, 3};
  std::memcpy(header_.pixdim, pixdim, sizeof pixdim);
  const Volume volume = read_nifti(write("turned.nii", bytes_of(header_))).volume;
  EXPECT_EQ(volume.size, (Size{4, 2, 3}));
  EXPECT_EQ(volume.spacing, (std::array<double, 3>{2, 3, 1}));
  for (int64_t d = 0; d < 4; ++d) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t w = 0; w < 3; ++w) EXPECT_EQ(volume.at(d, h, w), (3 - d) + 4 * w + 12 * (1 - h));
    }
  }
}

TEST_F(MriNifti, VoxelsThatAreNotFiniteBecomeZero) {
  std::vector<float> values(24, 2.0f);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  values[1] = std::numeric_limits<float>::infinity();
  store(values, DT_FLOAT32);
  const Scan scan = read_nifti(write("nan.nii", bytes_of(header_)));
  EXPECT_EQ(scan.volume.voxels[0], 0);
  EXPECT_EQ(scan.volume.voxels[1], 0);
  EXPECT_EQ(scan.volume.voxels[2], 2);
}

TEST_F(MriNifti, RefusesMissingAndForeignFiles) {
  expect_refused((folder_ / "missing.nii").string(), "no such file");
  expect_refused(write("a.txt", bytes_of(header_)), "must end in");
  expect_refused(write("empty.nii", ""), "too short");
  expect_refused(write("short.nii", bytes_of(header_).substr(0, 347)), "too short");
  expect_refused(write("text.nii", std::string(1000, 'x')), "not a single-file NIfTI");
  expect_refused(write("ascii.nii", "<nifti_image\n" + std::string(1000, ' ')), "not a single-file NIfTI");
  fs::create_directory(folder_ / "folder.nii");
  expect_refused((folder_ / "folder.nii").string(), "not a regular file");
}

TEST_F(MriNifti, RefusesTruncatedAndDamagedFiles) {
  const std::string bytes = bytes_of(header_);
  expect_refused(write("cut.nii", bytes.substr(0, bytes.size() - 1)), "truncated");
  expect_refused(write("cut.nii.gz", bytes.substr(0, bytes.size() - 1), true), "truncated");

  const std::string whole = write("whole.nii.gz", bytes, true);
  const std::string packed = vox::testing::read_bytes(whole);
  for (size_t length = 1; length < packed.size(); ++length) {
    EXPECT_NE(refusal(write("cut_stream.nii.gz", packed.substr(0, length))), "was read") << length;
  }
  std::string wrong_checksum = packed;
  wrong_checksum[packed.size() - 8] ^= 1;
  expect_refused(write("checksum.nii.gz", wrong_checksum), "corrupt gzip");
}

TEST_F(MriNifti, RefusesImpossibleHeaders) {
  const auto refused = [&](const char* name, const char* reason, auto change) {
    nifti_1_header header = header_;
    change(header);
    expect_refused(write(name, bytes_of(header)), reason);
  };
  refused("huge.nii", "limit", [](auto& h) { h.dim[1] = h.dim[2] = h.dim[3] = 32767; });
  refused("large.nii", "truncated", [](auto& h) { h.dim[1] = h.dim[2] = h.dim[3] = 1000; });
  refused("2d.nii", "not a 3-D image", [](auto& h) { h.dim[0] = 2; });
  refused("slice.nii", "not a 3-D image", [](auto& h) { h.dim[3] = 1; });
  refused("4d.nii", "not a 3-D image", [](auto& h) { h.dim[0] = 4, h.dim[4] = 2; });
  refused("negative.nii", "not a 3-D image", [](auto& h) { h.dim[2] = -3; });
  refused("dim0.nii", "dim[0]", [](auto& h) { h.dim[0] = 0; });
  refused("dim8.nii", "dim[0]", [](auto& h) { h.dim[0] = 8; });
  refused("type.nii", "voxel type", [](auto& h) { h.datatype = 77; });
  refused("none.nii", "voxel type", [](auto& h) { h.datatype = 0; });
  refused("binary.nii", "voxel type", [](auto& h) { h.datatype = 1; });
  refused("rgb.nii", "not scalar",
          [](auto& h) { h.datatype = DT_RGB24, h.dim[1] = 1, h.dim[1] = 2, h.dim[2] = 2; });
  refused("nan.nii", "vox_offset", [](auto& h) { h.vox_offset = std::nanf(""); });
  refused("offset.nii", "vox_offset", [](auto& h) { h.vox_offset = -1e30f; });
  refused("beyond.nii", "truncated", [](auto& h) { h.vox_offset = 1e9f; });
  refused("pair.nii", "not a single-file NIfTI", [](auto& h) { std::memcpy(h.magic, "ni1", 4); });
}

// Any single wrong byte in the header is read or refused, and never more.
TEST_F(MriNifti, SurvivesEveryWrongHeaderByte) {
  const std::string bytes = bytes_of(header_);
  for (size_t i = 0; i < 352; ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      refusal(write("flip.nii", damaged));
    }
  }
}

}  // namespace
}  // namespace mri

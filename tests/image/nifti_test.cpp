// Reading valid NIfTI files, and refusing invalid ones.
#include <nifti2_io.h>
#include <zlib.h>

#include <voxgrad/image/image.h>

#include "tests/support/test.h"

namespace vox {
namespace {

namespace fs = std::filesystem;

class NiftiTest : public ::testing::Test {
 protected:
  NiftiTest() {
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
    const gzFile file = gzopen(path.c_str(), compress ? "wb" : "wbT");  // T: as it is
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
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
      read_image(path);
    } catch (const IoError& error) {
      message = error.what();
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << path;
    return message;
  }
  void expect_refused(const std::string& path, const std::string& reason) const {
    const std::string message = refusal(path);
    EXPECT_TRUE(has_parts(message, {reason}));
    EXPECT_TRUE(has_parts(message, {path}));
  }

  TemporaryFolder folder_;
  nifti_1_header header_{};
  std::vector<char> voxels_;
};

/// All voxels, x fastest.
Doubles voxels_of(const Image& image) { return image.data.to(f64).to_vector<double>(); }

TEST_F(NiftiTest, ReadsEveryScalarTypePlainAndCompressed) {
  const auto check = [&]<class Value>(Value, int16_t datatype, DType dtype) {
    std::vector<Value> values(24);
    for (int i = 0; i < 24; ++i) values[i] = static_cast<Value>(i + 103);
    values[0] = std::numeric_limits<Value>::lowest();
    values[1] = sizeof(Value) == 8 ? static_cast<Value>(int64_t{1} << 62) : std::numeric_limits<Value>::max();
    store(values, datatype);
    for (const bool compress : {false, true}) {
      const Image image = read_image(write(compress ? "a.nii.gz" : "a.nii", bytes_of(header_), compress));
      EXPECT_EQ(image.data.dtype(), dtype);
      EXPECT_EQ(image.data.shape(), (Shape{2, 3, 4}));
      EXPECT_EQ(voxels_of(image), Doubles(values.begin(), values.end())) << datatype;
    }
  };
  check(uint8_t{}, DT_UINT8, u8), check(int8_t{}, DT_INT8, f32), check(uint16_t{}, DT_UINT16, f32);
  check(int16_t{}, DT_INT16, f32), check(uint32_t{}, DT_UINT32, i64), check(int32_t{}, DT_INT32, i64);
  check(uint64_t{}, DT_UINT64, i64), check(int64_t{}, DT_INT64, i64);
  check(float{}, DT_FLOAT32, f32), check(double{}, DT_FLOAT64, f64);
  store(std::vector<uint64_t>(24, uint64_t{1} << 63), DT_UINT64);
  expect_refused(write("above.nii", bytes_of(header_)), "above 2^63 - 1");
}

TEST_F(NiftiTest, AppliesSlopeAndIntercept) {
  header_.scl_slope = 2;
  header_.scl_inter = -5;
  const Image image = read_image(write("s.nii", bytes_of(header_)));
  EXPECT_EQ(image.data.dtype(), f32);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(voxels_of(image)[i], 2 * i - 5);
}

TEST_F(NiftiTest, ReadsOtherByteOrder) {
  std::vector<int16_t> values(24);
  for (int i = 0; i < 24; ++i) values[i] = static_cast<int16_t>(1000 + i);
  for (int16_t& value : values) nifti_swap_2bytes(1, &value);
  store(values, DT_INT16);
  header_.pixdim[3] = 2.5;
  swap_nifti_header(&header_, 1);
  const Image image = read_image(write("swapped.nii", bytes_of(header_)));
  EXPECT_EQ(image.spacing[0], 2.5);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(voxels_of(image)[i], 1000 + i);
}

TEST_F(NiftiTest, FurtherDimensionsAreChannels) {
  nifti_2_header second{};
  second.sizeof_hdr = 540;
  std::memcpy(second.magic, "n+2\0\r\n\032\n", 8);
  second.datatype = DT_UINT8;
  second.bitpix = 8;
  second.vox_offset = 544;
  const int64_t dim[8] = {5, 2, 3, 2, 1, 2, 1, 1};
  std::memcpy(second.dim, dim, sizeof dim);
  const Image image = read_image(write("two.nii", bytes_of(second)));
  EXPECT_EQ(image.data.shape(), (Shape{2, 2, 3, 2}));
  EXPECT_EQ(image.data[1][1][2][1].item<int>(), 23);
}

TEST_F(NiftiTest, GeometryIsThatOfTheBestForm) {
  header_.pixdim[1] = 1, header_.pixdim[2] = 2, header_.pixdim[3] = 3;
  const auto geometry = [&] { return read_image(write("g.nii", bytes_of(header_))); };
  Image image = geometry();  // sizes alone
  EXPECT_EQ(image.spacing, (Image::Vector{3, 2, 1}));
  EXPECT_EQ(image.direction, (std::array<Image::Vector, 3>{{{0, 0, 1}, {0, 1, 0}, {1, 0, 0}}}));
  EXPECT_EQ(image.origin, (Image::Vector{0, 0, 0}));
  header_.qform_code = 1;
  header_.quatern_d = 1;  // half a turn about z
  header_.qoffset_x = 5;
  header_.xyzt_units = NIFTI_UNITS_MICRON;
  image = geometry();
  EXPECT_EQ(image.direction[2], (Image::Vector{1, 0, 0}));
  EXPECT_FLOAT_EQ(static_cast<float>(image.spacing[0]), 3e-3f);
  EXPECT_FLOAT_EQ(static_cast<float>(image.origin[0]), -5e-3f);
  header_.sform_code = 1;
  header_.xyzt_units = NIFTI_UNITS_MM;
  header_.srow_x[2] = -3, header_.srow_y[0] = 1, header_.srow_z[1] = 2, header_.srow_z[3] = 4;
  image = geometry();
  EXPECT_EQ(image.spacing, (Image::Vector{3, 2, 1}));
  EXPECT_EQ(image.origin, (Image::Vector{0, 0, 4}));
  EXPECT_EQ(image.direction, (std::array<Image::Vector, 3>{{{1, 0, 0}, {0, 0, 1}, {0, -1, 0}}}));
  header_.srow_x[2] = -9;  // another length than the voxel's, whose size ITK (SimpleITK 2) takes
  image = geometry();
  EXPECT_EQ(image.spacing, (Image::Vector{3, 2, 1}));
  EXPECT_EQ(image.direction[0], (Image::Vector{1, 0, 0}));
  header_.srow_x[2] = 0;
  expect_refused(write("g.nii", bytes_of(header_)), "no coordinate system");
}

TEST_F(NiftiTest, RefusesMissingAndForeignFiles) {
  expect_refused((folder_ / "missing.nii").string(), "no such file");
  expect_refused(write("a.txt", bytes_of(header_)), "must end in");
  expect_refused(write("empty.nii", ""), "truncated");
  expect_refused(write("short.nii", bytes_of(header_).substr(0, 347)), "truncated");
  expect_refused(write("text.nii", std::string(1000, 'x')), "not a single-file NIfTI");
  expect_refused(write("ascii.nii", "<nifti_image\n" + std::string(1000, ' ')), "not a single-file NIfTI");
  fs::create_directory(folder_ / "folder.nii");
  expect_refused((folder_ / "folder.nii").string(), "not a regular file");
}

TEST_F(NiftiTest, RefusesTruncatedAndDamagedFiles) {
  const std::string bytes = bytes_of(header_);
  expect_refused(write("cut.nii", bytes.substr(0, bytes.size() - 1)), "truncated");
  expect_refused(write("cut.nii.gz", bytes.substr(0, bytes.size() - 1), true), "truncated");

  const std::string whole = write("whole.nii.gz", bytes, true);
  const std::string packed = read_bytes(whole);
  for (size_t length = 1; length < packed.size(); ++length) {
    EXPECT_NE(refusal(write("cut_stream.nii.gz", packed.substr(0, length))), "was read") << length;
  }
  std::string wrong_checksum = packed;
  wrong_checksum[packed.size() - 8] ^= 1;
  expect_refused(write("checksum.nii.gz", wrong_checksum), "corrupt");
}

TEST_F(NiftiTest, RefusesImpossibleHeaders) {
  const auto refused = [&](const char* name, const char* reason, auto change) {
    nifti_1_header header = header_;
    change(header);
    expect_refused(write(name, bytes_of(header)), reason);
  };
  refused("huge.nii", "cannot hold", [](auto& h) {
    for (int i = 0; i < 8; ++i) h.dim[i] = i ? 32767 : 7;
  });
  refused("large.nii", "cannot hold", [](auto& h) { h.dim[1] = h.dim[2] = h.dim[3] = 1000; });
  refused("negative.nii", "dim[2] is -3", [](auto& h) { h.dim[2] = -3; });
  refused("dim0.nii", "dim[0]", [](auto& h) { h.dim[0] = 0; });
  refused("dim8.nii", "dim[0]", [](auto& h) { h.dim[0] = 8; });
  refused("type.nii", "voxel type", [](auto& h) { h.datatype = 77; });
  refused("none.nii", "voxel type", [](auto& h) { h.datatype = 0; });
  refused("binary.nii", "voxel type", [](auto& h) { h.datatype = 1; });
  refused("rgb.nii", "RGB24", [](auto& h) { h.datatype = DT_RGB24; });
  refused("nan.nii", "vox_offset", [](auto& h) { h.vox_offset = std::nanf(""); });
  refused("offset.nii", "vox_offset", [](auto& h) { h.vox_offset = -1e30f; });
  refused("beyond.nii", "truncated", [](auto& h) { h.vox_offset = 1e9f; });
  refused("pair.nii", "not a single-file NIfTI", [](auto& h) { std::memcpy(h.magic, "ni1", 4); });
}

}  // namespace
}  // namespace vox

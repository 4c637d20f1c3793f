// Scans in all formats: written and read again, files of SimpleITK, nibabel and pynrrd, and files that are
// refused.
#include <voxgrad/image/image.h>

#include "tests/support/test.h"

namespace vox {
namespace {

const std::filesystem::path recorded = std::filesystem::path(testing::data_dir) / "image";
const char* const names[] = {"a.nii", "a.nii.gz", "a.mha", "a.nrrd"};

/// A geometry that f32 holds: turned by acos(0.8), axes of different lengths.
Image turned(const Tensor& data) {
  return {.data = data,
          .spacing = {3, 0.75, 0.5},
          .origin = {-10.5, 20.25, 7},
          .direction = {{{0, 0, 1}, {-0.6, 0.8, 0}, {0.8, 0.6, 0}}}};
}

void expect_same_data(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.to(f64).to_vector<double>(), b.to(f64).to_vector<double>());
}

void expect_near_geometry(const Image& a, const Image& b, double tolerance) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(a.spacing[i], b.spacing[i], tolerance);
    EXPECT_NEAR(a.origin[i], b.origin[i], tolerance);
    for (int k = 0; k < 3; ++k) EXPECT_NEAR(a.direction[i][k], b.direction[i][k], tolerance) << i << k;
  }
}

class ImageTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(ImageTest, SurvivesWritingAndReading) {
  const Tensor numbers = arange(0, 2 * 3 * 4 * 5, 1, {.dtype = i64}).reshape({2, 3, 4, 5});
  for (const char* name : names) {
    const auto path = folder_ / name;
    for (const DType dtype : {f32, f64, i64, u8, i16, u16, i32}) {
      for (const Tensor& data : {numbers.to(dtype), numbers.to(dtype).select(0, 1).transpose(0, 2)}) {
        const Image image = turned(data);
        write_image(path, image);
        const Image again = read_image(path, {.keep_dtype = true});
        expect_same_data(again.data, data);
        expect_same_data(read_image(path).data, data.to(dtype == i32            ? i64
                                                        : is_only_stored(dtype) ? f32
                                                                                : dtype));
        EXPECT_EQ(again.spacing, image.spacing) << name;
        EXPECT_EQ(again.origin, image.origin) << name;
        expect_near_geometry(again, image, 1e-7);
        const std::string bytes = read_bytes(path);
        write_image(path, again);  // what was read once does not change any more
        EXPECT_TRUE(read_bytes(path) == bytes) << name;
      }
    }
    write_image(path, turned(lt(numbers, 3)));
    expect_same_data(read_image(path).data, lt(numbers, 3).to(u8));
  }
  EXPECT_EQ(folder_.entries(), 4);
}

TEST_F(ImageTest, MetaImageKeepsEveryBitOfTheGeometry) {
  Image image = turned(ones({1, 1, 1}));
  image.spacing = {1.0 / 3, 1e-5, 7e8};
  image.origin = {-M_PI, 1e-300, 0.1};
  image.direction[1] = {std::sqrt(0.5), -std::sqrt(0.5), 0};
  write_image(folder_ / "a.mha", image);
  const Image again = read_image(folder_ / "a.mha");
  EXPECT_EQ(again.spacing, image.spacing);
  EXPECT_EQ(again.origin, image.origin);
  EXPECT_EQ(again.direction, image.direction);
}

TEST_F(ImageTest, LongAxesMakeNifti2) {
  const Image image = turned(ones({1, 2, 40000}, {u8}));
  write_image(folder_ / "a.nii.gz", image);
  expect_same_data(read_image(folder_ / "a.nii.gz").data, image.data);
}

TEST(Image, FilesOfOtherPrograms) {
  const Tensor voxels = arange(-1000, 1400, 100).reshape({2, 3, 4});  // i16 in the files
  for (const char* name : {"itk.nii.gz", "itk.mha", "itk_plain.mhd", "itk.nrrd", "nibabel.nii"}) {
    const Image image = read_image(recorded / name);
    expect_same_data(image.data, voxels);
    expect_near_geometry(image, turned(voxels), 1e-7);
    const bool exact = std::string_view(name) != "itk.nrrd";  // which has spacing * direction
    EXPECT_TRUE(image.spacing == turned(voxels).spacing || !exact) << name;
  }
  const Tensor colours = arange(0, 72, 1, {.dtype = u8}).reshape({2, 3, 4, 3}).permute({3, 0, 1, 2});
  expect_same_data(read_image(recorded / "itk_colours.mha").data, colours);
  expect_same_data(read_image(recorded / "itk_colours.nrrd").data, colours);
  for (const char* name : {"itk_flat.nii", "itk_flat.mha", "itk_flat.nrrd"}) {
    const Image image = read_image(recorded / name);
    expect_same_data(image.data, arange(12).reshape({1, 3, 4}));
    EXPECT_EQ(image.spacing, (Image::Vector{1, 0.75, 0.5})) << name;
  }
  const Image spaced = read_image(recorded / "pynrrd.nrrd");
  expect_same_data(spaced.data, voxels);
  EXPECT_EQ(spaced.spacing, (Image::Vector{3, 0.75, 0.5}));
}

TEST(Image, CanonicalAxesShowTheSamePlaces) {
  const Tensor data = arange(24).reshape({2, 3, 4});
  const Image image = {.data = data,
                       .spacing = {2, 3, 5},
                       .origin = {1, 2, 3},
                       .direction = {{{0.98, 0.199, 0}, {0, 0, -1}, {-0.199, 0.98, 0}}}};
  const Image turned = closest_canonical(image);
  EXPECT_EQ(turned.data.shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(turned.spacing, (Image::Vector{3, 5, 2}));
  EXPECT_EQ(turned.direction,
            (std::array<Image::Vector, 3>{{{0, 0, 1}, {0.199, -0.98, 0}, {-0.98, -0.199, 0}}}));
  const auto place = [](const Image& i, std::array<int64_t, 3> voxel, int k) {
    double at = i.origin[k];
    for (int axis = 0; axis < 3; ++axis)
      at += static_cast<double>(voxel[axis]) * i.spacing[axis] * i.direction[axis][k];
    return at;
  };
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t b = 0; b < 3; ++b) {
      for (int64_t c = 0; c < 4; ++c) {
        EXPECT_EQ(turned.data[2 - b][3 - c][1 - a].item(), data[a][b][c].item());
        for (int k = 0; k < 3; ++k)
          EXPECT_NEAR(place(turned, {2 - b, 3 - c, 1 - a}, k), place(image, {a, b, c}, k), 1e-12);
      }
    }
  }
  const Image again = closest_canonical(turned);
  expect_same_data(again.data, turned.data);
  EXPECT_EQ(again.origin, turned.origin);
}

TEST_F(ImageTest, RefusesToWriteWhatIsNoImage) {
  const Image good = turned(ones({2, 2, 2}));
  const auto refused = [&](const char* text, auto change) {
    Image bad = good;
    change(bad);
    for (const char* name : names) EXPECT_REFUSED(Error, write_image(folder_ / name, bad), text);
  };
  refused("must be (D, H, W)", [](Image& i) { i.data = ones({2, 2}); });
  refused("must be (D, H, W)", [](Image& i) { i.data = ones({2, 0, 2}); });
  refused("data", [](Image& i) { i.data = Tensor(); });
  refused("got bf16", [](Image& i) { i.data = i.data.to(bf16); });
  refused("spacing", [](Image& i) { i.spacing[1] = 0; });
  refused("spacing", [](Image& i) { i.spacing[1] = NAN; });
  refused("origin", [](Image& i) { i.origin[0] = INFINITY; });
  refused("length 1", [](Image& i) { i.direction[0] = {0, 0, 2}; });
  refused("in a plane", [](Image& i) { i.direction[0] = i.direction[1]; });
  EXPECT_ERRORS(ValueError, write_image(folder_ / "a.mhd", good), write_image(folder_ / "a.png", good));
  EXPECT_THROW(write_image(folder_ / "no/a.mha", good), IoError);
  EXPECT_EQ(folder_.entries(), 0);
}

/// A header with one line replaced, or added if `from` is empty.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST_F(ImageTest, RefusesDamagedMetaImages) {
  const std::string plain = with(read_bytes(recorded / "itk_plain.mhd"), "itk_plain.raw", "LOCAL") +
                            read_bytes(recorded / "itk_plain.raw");
  const auto refused = [&](const char* from, const char* to, const char* text) {
    write_bytes(folder_ / "a.mha", with(plain, from, to));
    EXPECT_REFUSED(IoError, read_image(folder_ / "a.mha"), text);
  };
  refused("ObjectType = Image", "ObjectType = Mesh", "ObjectType");
  refused("NDims = 3", "NDims = 4", "NDims must be 2 or 3, got 4");
  refused("BinaryData = True", "BinaryData = False", "text data");
  refused("CompressedData = False", "CompressedData = maybe", "True or False");
  refused("CompressedData = False", "CompressedData = True", "corrupt");
  refused("DimSize = 4 3 2", "DimSize = 4 3", "must have 3 numbers, got 2");
  refused("DimSize = 4 3 2", "DimSize = 4 3 -2", "positive");
  refused("DimSize = 4 3 2", "DimSize = 4 3 x", "must have numbers, got 'x'");
  refused("DimSize = 4 3 2", "DimSize = 4 3 3", "truncated");
  refused("DimSize = 4 3 2", "DimSize = 4294967296 4294967296 4", "cannot hold");
  refused("ElementSpacing = 0.5 0.75 3", "ElementSpacing = 0 1 1", "spacing must be positive");
  refused("ElementType = MET_SHORT", "ElementType = MET_STRING", "MET_STRING is not read");
  refused("LOCAL", "../secret.raw", "same folder");
  refused("LOCAL", "missing.raw", "missing.raw: no such file");
  refused("ElementDataFile = LOCAL", "ElementDataFile : LOCAL", "no '='");
  write_bytes(folder_ / "a.mha", std::string(2 << 20, 'x'));
  EXPECT_REFUSED(IoError, read_image(folder_ / "a.mha"), "longer than 1 MB");
  write_bytes(folder_ / "a.mha", with(plain, "DataByteOrderMSB = False", "DataByteOrderMSB = True"));
  EXPECT_EQ(read_image(folder_ / "a.mha").data[0][0][0].item(), 0x18fc);  // -1000 backwards
}

TEST_F(ImageTest, RefusesDamagedNrrds) {
  const std::string plain = read_bytes(recorded / "itk_colours.nrrd");
  const auto refused = [&](const char* from, const char* to, const char* text) {
    write_bytes(folder_ / "a.nrrd", with(plain, from, to));
    EXPECT_REFUSED(IoError, read_image(folder_ / "a.nrrd"), text);
  };
  refused("NRRD0004", "NERD0004", "not a NRRD file");
  refused("sizes: 3 4 3 2", "sizes: 3 4 3 2 1", "2 to 4 dimensions");
  refused("sizes: 3 4 3 2", "sizes: 3 4 3", "must have 3 vectors, got 4");
  refused("sizes: 3 4 3 2", "sizes: 3 4 3 3", "truncated");
  refused("sizes: 3 4 3 2", "sizes: 3 4 3 99", "cannot hold");
  refused("type: unsigned char", "type: block", "'block' is not read");
  refused("encoding: raw", "encoding: hex", "must be raw or gzip");
  refused("encoding: raw", "encoding: gzip", "corrupt");
  refused("encoding: raw", "encoding: raw\nbyte skip: 7", "must be 0");
  refused("encoding: raw", "encoding: raw\ndata file: /etc/passwd", "same folder");
  refused("encoding: raw", "encoding raw", "no ':'");
  refused("none (1,0,0)", "none none", "more than one axis");
  refused("none (1,0,0)", "(1,0,0) (1,0,0)", "2 or 3 axes");
  refused("(1,0,0)", "(1,0,0", "must have");
  refused("(1,0,0)", "(0,0,0)", "no length");
  refused("(1,0,0)", "(0,1,0)", "in a plane");
  refused("left-posterior-superior", "scanner-xyz", "is not read");
  write_bytes(folder_ / "a.nrrd", with(plain, "left-posterior-superior", "right-anterior-superior"));
  EXPECT_EQ(read_image(folder_ / "a.nrrd").direction[2], (Image::Vector{-1, 0, 0}));
}

TEST_F(ImageTest, TruncatedAndDamagedFilesNeverCrash) {
  for (const char* name : {"itk.nii.gz", "itk.mha", "itk.nrrd", "itk_flat.nii", "itk_colours.mha"}) {
    const std::string bytes = read_bytes(recorded / name), kind = name;
    const auto path = folder_ / kind.substr(kind.find('.')).insert(0, "a").c_str();
    const auto refusal = [&](const std::string& damaged) {
      return refusal_of_file<IoError>([](const auto& p) { read_image(p); }, path, damaged);
    };
    for (size_t length = 0; length < bytes.size(); ++length)
      EXPECT_TRUE(refusal(bytes.substr(0, length)).starts_with("read_image: ")) << name << length;
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 ? 0xff : 0x01));
      EXPECT_FALSE(refusal(damaged).starts_with("(another")) << name << i;
    }
  }
}

}  // namespace
}  // namespace vox

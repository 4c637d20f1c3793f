#pragma once

#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <voxgrad/image/image.h>
#include <voxgrad/nn/atomic_file.h>

// What the file formats share: bytes that may be compressed, voxels of any type, and numbers in text.
namespace vox::detail {

/// A file that is read from its beginning to its end. All errors are IoError.
class ImageInput {
 public:
  explicit ImageInput(const std::filesystem::path& path);
  ImageInput(const ImageInput&) = delete;
  ImageInput& operator=(const ImageInput&) = delete;
  ~ImageInput();

  [[noreturn]] void refuse(const std::string& reason) const;
  void require(bool ok, const std::string& reason) const {
    if (!ok) refuse(reason);
  }

  std::string line();  ///< of a text header, which must end before its first MB
  bool at_end() { return in_.peek() == std::char_traits<char>::eof(); }
  void decompress();  ///< what follows is a gzip or zlib stream
  void read(void* to, int64_t bytes);
  void skip(int64_t bytes);
  /// Goes to the end of a compressed stream, where its checksum is, unless more data follows.
  void finish();
  /// What the rest of the file can hold at most: deflate never packs better than 1032 to 1.
  int64_t most_bytes() const;

 private:
  int64_t inflate_some(unsigned char* to, int64_t bytes);
  int64_t read_some(void* to, int64_t bytes);

  std::string name_;
  std::ifstream in_;
  int64_t file_bytes_ = 0, header_bytes_ = 0;
  bool compressed_ = false, ended_ = false;
  z_stream stream_{};
  std::vector<unsigned char> packed_;
};

/// An nn::detail::AtomicFile whose bytes are compressed after compress().
class ImageOutput {
 public:
  explicit ImageOutput(const std::filesystem::path& path) : file_("write_image", path) {}
  ImageOutput(const ImageOutput&) = delete;
  ImageOutput& operator=(const ImageOutput&) = delete;
  ~ImageOutput();

  void compress();  ///< what follows, as gzip
  void write(const void* data, int64_t bytes);
  void commit();

 private:
  void deflate_all(const unsigned char* data, int64_t bytes, int flush);

  nn::detail::AtomicFile file_;
  bool compressed_ = false;
  z_stream stream_{};
};

/// How a voxel is stored.
enum class Stored { i8, u8, i16, u16, i32, u32, i64, u64, f32, f64 };
struct VoxelFormat {
  Stored type = Stored::u8;
  bool swapped = false;  ///< of the other byte order
  bool keeps_dtype = false;
  double slope = 1, intercept = 0;
};

/// The next voxels of the file, as the tensor of `sizes` (slowest first).
Tensor read_voxels(ImageInput& in, const std::vector<int64_t>& sizes, const VoxelFormat& format);
/// (D, H, W) or (C, D, H, W) of the dtype with which voxels are stored.
void write_voxels(ImageOutput& out, const Tensor& data);
Stored stored_as(DType dtype);

/// The numbers of a text, between spaces; refuses anything else.
std::vector<double> real_numbers(const ImageInput& in, const std::string& field, std::string_view text);
std::vector<int64_t> whole_numbers(const ImageInput& in, const std::string& field, std::string_view text);
std::string_view trimmed(std::string_view text);
std::string exact_text(double number);  ///< the shortest that reads as this number

/// The part of `header`'s folder that has the data of a detached header: a name without a folder.
std::filesystem::path data_file(const ImageInput& in, const std::filesystem::path& header,
                                std::string_view name);

/// `data` with its channels first; `axis` has them, or is -1. 2-D data gets a D of 1.
Tensor as_volume(const Tensor& data, int64_t axis);

/// Nothing, or what is wrong with an image's geometry.
std::string fault_of_geometry(const Image& image);

Image read_nifti(const std::filesystem::path& path, bool compressed, bool keeps_dtype);
void write_nifti(const std::filesystem::path& path, const Image& image, bool compressed);
Image read_metaimage(const std::filesystem::path& path, bool keeps_dtype);
void write_metaimage(const std::filesystem::path& path, const Image& image);
Image read_nrrd(const std::filesystem::path& path, bool keeps_dtype);
void write_nrrd(const std::filesystem::path& path, const Image& image);

}  // namespace vox::detail

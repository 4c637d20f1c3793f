#include "voxels.h"

#include <voxgrad/core/factories.h>
#include <voxgrad/core/print.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>

namespace vox::detail {

namespace {
constexpr int64_t chunk_bytes = 1 << 18;
}

// ---- Bytes ---------------------------------------------------------------------------------------------

ImageInput::ImageInput(const std::filesystem::path& path) : name_(path.string()) {
  std::error_code error;
  require(std::filesystem::exists(path, error), "no such file");
  require(std::filesystem::is_regular_file(path, error), "not a regular file");
  file_bytes_ = static_cast<int64_t>(std::filesystem::file_size(path, error));
  in_.open(path, std::ios::binary);
  require(!error && in_.is_open(), "cannot open the file (is it readable?)");
}

ImageInput::~ImageInput() {
  if (compressed_) inflateEnd(&stream_);
}

void ImageInput::refuse(const std::string& reason) const {
  throw IoError(str("read_image: ", name_, ": ", reason));
}

std::string ImageInput::line() {
  std::string text;
  for (int c = in_.get(); c != '\n'; c = in_.get()) {
    require(!in_.bad(), "cannot read the file");
    require(c != std::char_traits<char>::eof(), "the text header has no end");
    require(++header_bytes_ < 1 << 20, "the text header is longer than 1 MB");
    text += static_cast<char>(c);
  }
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void ImageInput::decompress() {
  packed_.resize(chunk_bytes);
  if (inflateInit2(&stream_, 15 + 32) != Z_OK) throw OutOfMemoryError("read_image: no memory for zlib");
  compressed_ = true;
}

int64_t ImageInput::most_bytes() const { return compressed_ ? 1032 * file_bytes_ : file_bytes_; }

/// Fewer at the end of the file.
int64_t ImageInput::read_some(void* to, int64_t bytes) {
  in_.read(static_cast<char*>(to), bytes);
  require(!in_.bad(), "cannot read the file");
  return in_.gcount();
}

int64_t ImageInput::inflate_some(unsigned char* to, int64_t bytes) {
  stream_.next_out = to;
  stream_.avail_out = static_cast<uInt>(std::min<int64_t>(bytes, 1 << 30));
  const uInt wanted = stream_.avail_out;
  while (stream_.avail_out > 0) {
    if (stream_.avail_in == 0) {
      stream_.next_in = packed_.data();
      stream_.avail_in = static_cast<uInt>(read_some(packed_.data(), chunk_bytes));
    }
    if (ended_) {  // another gzip member may follow
      if (stream_.avail_in < 2 || stream_.next_in[0] != 0x1f || stream_.next_in[1] != 0x8b) break;
      inflateReset(&stream_);
      ended_ = false;
    }
    require(stream_.avail_in > 0, "truncated: the compressed data has no end");
    const int status = inflate(&stream_, Z_NO_FLUSH);
    require(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, "corrupt compressed data");
    ended_ = status == Z_STREAM_END;
  }
  return wanted - stream_.avail_out;
}

void ImageInput::read(void* to, int64_t bytes) {
  auto* next = static_cast<unsigned char*>(to);
  for (int64_t left = bytes; left > 0;) {
    const int64_t got = compressed_ ? inflate_some(next, left) : read_some(next, left);
    require(got > 0, str("truncated: ", left, " bytes are missing"));
    next += got, left -= got;
  }
}

void ImageInput::skip(int64_t bytes) {
  std::vector<char> skipped(static_cast<size_t>(std::min(bytes, chunk_bytes)));
  for (; bytes > 0; bytes -= chunk_bytes) read(skipped.data(), std::min(bytes, chunk_bytes));
}

void ImageInput::finish() {
  unsigned char byte = 0;
  if (compressed_) inflate_some(&byte, 1);
}

ImageOutput::~ImageOutput() {
  if (compressed_) deflateEnd(&stream_);
}

void ImageOutput::compress() {
  constexpr int bits = 15 + 16;  // + 16: gzip
  // nibabel's level: at zlib's own, 6, masks take 4 to 9 times as long and are 0.55 to 0.8 times as large.
  constexpr int level = 1;
  if (deflateInit2(&stream_, level, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw OutOfMemoryError("write_image: no memory for zlib");
  compressed_ = true;
}

void ImageOutput::deflate_all(const unsigned char* data, int64_t bytes, int flush) {
  std::vector<unsigned char> packed(chunk_bytes);
  stream_.next_in = const_cast<unsigned char*>(data);
  stream_.avail_in = static_cast<uInt>(bytes);
  do {
    stream_.next_out = packed.data();
    stream_.avail_out = static_cast<uInt>(packed.size());
    deflate(&stream_, flush);
    file_.write(packed.data(), packed.size() - stream_.avail_out);
  } while (stream_.avail_out == 0);
}

void ImageOutput::write(const void* data, int64_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  if (!compressed_) return file_.write(data, static_cast<size_t>(bytes));
  for (; bytes > 0; bytes -= 1 << 30, next += 1 << 30)
    deflate_all(next, std::min<int64_t>(bytes, 1 << 30), Z_NO_FLUSH);
}

void ImageOutput::commit() {
  if (compressed_) deflate_all(nullptr, 0, Z_FINISH);
  file_.commit();
}

// ---- Voxels --------------------------------------------------------------------------------------------

namespace {

/// In the order of Stored.
using StoredTypes =
    std::tuple<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, float, double>;

/// Calls f(T{}) with the C++ type of a stored one.
template <size_t i = 0, class F>
Tensor visit_stored(Stored type, const F& f) {
  if constexpr (i + 1 < std::tuple_size_v<StoredTypes>) {
    if (type != Stored{i}) return visit_stored<i + 1>(type, f);
  }
  return f(std::tuple_element_t<i, StoredTypes>{});
}

/// The dtype that holds all values of a stored type.
template <class T>
constexpr DType dtype_for(bool keeps_dtype) {
  if (std::is_same_v<T, uint8_t>) return vox::u8;
  if (std::is_same_v<T, double>) return vox::f64;
  if (keeps_dtype && std::is_integral_v<T> && sizeof(T) <= 4 && !std::is_same_v<T, uint32_t>)
    return sizeof(T) == 4 ? vox::i32 : std::is_same_v<T, uint16_t> ? vox::u16 : vox::i16;
  return std::is_floating_point_v<T> || sizeof(T) < 4 ? vox::f32 : vox::i64;
}

template <class From, class To>
void read_as(ImageInput& in, To* to, int64_t count, const VoxelFormat& format) {
  const bool scaled = format.slope != 1 || format.intercept != 0;
  std::vector<From> chunk(static_cast<size_t>(std::min<int64_t>(count, chunk_bytes / sizeof(From))));
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min<int64_t>(count - done, static_cast<int64_t>(chunk.size()));
    in.read(chunk.data(), n * static_cast<int64_t>(sizeof(From)));
    for (int64_t i = 0; i < n; ++i) {
      From& value = chunk[static_cast<size_t>(i)];
      if (format.swapped) {
        auto* bytes = reinterpret_cast<unsigned char*>(&value);
        std::reverse(bytes, bytes + sizeof value);
      }
      if constexpr (std::is_same_v<From, uint64_t>)
        in.require(value <= static_cast<uint64_t>(INT64_MAX) || std::is_floating_point_v<To>,
                   "a voxel is above 2^63 - 1, which no tensor holds");
      to[done + i] = scaled ? static_cast<To>(static_cast<double>(value) * format.slope + format.intercept)
                            : static_cast<To>(value);
    }
    done += n;
  }
}

}  // namespace

Tensor read_voxels(ImageInput& in, const std::vector<int64_t>& sizes, const VoxelFormat& format) {
  return visit_stored(format.type, [&](auto stored) {
    using From = decltype(stored);
    int64_t bytes = sizeof(From);
    for (const int64_t size : sizes) {
      in.require(size >= 1, str("sizes must be positive, got ", Shape(sizes)));
      const bool fits = !__builtin_mul_overflow(bytes, size, &bytes) && bytes <= in.most_bytes();
      in.require(fits, str("truncated: a file of this size cannot hold ", Shape(sizes), " voxels"));
    }
    const bool scaled = format.slope != 1 || format.intercept != 0;
    const DType dtype =
        scaled && !std::is_same_v<From, double> ? vox::f32 : dtype_for<From>(format.keeps_dtype);
    Tensor data = in_the_name_of("read_image", [&] { return empty(Shape(sizes), {dtype}); });
    visit_storage(dtype, [&](auto element) {
      using To = decltype(element);
      if constexpr (!std::is_same_v<To, bool> && !is_16_bit_v<To>)
        read_as<From>(in, data.mutable_data<To>(), data.numel(), format);
    });
    in.finish();
    return data;
  });
}

Stored stored_as(DType dtype) {
  check<DTypeError>(!is_16_bit(dtype), "write_image: files have no 16-bit floating dtype, got ", dtype,
                    "; use to(f32)");
  constexpr Stored nothing{};
  constexpr Stored types[] = {Stored::f32, Stored::f64, Stored::i64, Stored::u8,  Stored::u8,
                              nothing,     nothing,     Stored::i16, Stored::u16, Stored::i32};  // by DType
  static_assert(std::size(types) == static_cast<size_t>(vox::i32) + 1);  // a new dtype needs a type
  return types[static_cast<int>(dtype)];
}

void write_voxels(ImageOutput& out, const Tensor& data) {
  const Tensor dense = data.detach().to(Device::cpu()).contiguous();
  out.write(dense.impl()->data(), dense.numel() * size_of(dense.dtype()));
}

Tensor as_volume(const Tensor& data, int64_t axis) {
  if (axis >= 0 && data.size(axis) == 1) return as_volume(data.squeeze(axis), -1);
  Tensor volume = data;
  if (axis >= 0) {
    Shape order{axis};
    for (int64_t i = 0; i < data.rank(); ++i) {
      if (i != axis) order.push_back(i);
    }
    volume = data.permute(order).contiguous();
  }
  return volume.rank() - (axis >= 0 ? 1 : 0) == 2 ? volume.unsqueeze(-3) : volume;
}

// ---- Text ----------------------------------------------------------------------------------------------

std::string_view trimmed(std::string_view text) {
  constexpr const char* spaces = " \t\r";
  const size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) + 1 - first);
}

namespace {

template <class T>
std::vector<T> numbers(const ImageInput& in, const std::string& field, std::string_view text) {
  std::vector<T> all;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto length = static_cast<size_t>(end - text.data());
    in.require(error == std::errc{} && (length == text.size() || text[length] == ' ' || text[length] == '\t'),
               str(field, " must have numbers, got '", text.substr(0, 40), "'"));
    in.require(all.size() < 64, field + " has too many numbers");
    all.push_back(value);
    text.remove_prefix(length);
  }
  return all;
}

}  // namespace

std::vector<double> real_numbers(const ImageInput& in, const std::string& field, std::string_view text) {
  return numbers<double>(in, field, text);
}
std::vector<int64_t> whole_numbers(const ImageInput& in, const std::string& field, std::string_view text) {
  return numbers<int64_t>(in, field, text);
}

std::string exact_text(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::filesystem::path data_file(const ImageInput& in, const std::filesystem::path& header,
                                std::string_view name) {
  const std::filesystem::path file(name);
  in.require(!name.empty() && name != ".." && file == file.filename(),
             str("the data must be in one file of the same folder, got '", name, "'"));
  return header.parent_path() / file;
}

}  // namespace vox::detail

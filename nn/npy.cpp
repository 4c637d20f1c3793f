#include <voxgrad/nn/atomic_file.h>
#include <voxgrad/nn/npy.h>
#include <voxgrad/nn/safetensors.h>
#include <voxgrad/nn/zip.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <set>
#include <string_view>

// The .npy format:
//
//     6 bytes          "\x93NUMPY"
//     2 bytes          major and minor version
//     2 bytes          length n of the header, little-endian; 4 bytes from version 2 on
//     n bytes          a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//     the rest         the elements
//
// An .npz file is a zip archive of such files.

namespace vox {

static_assert(std::endian::native == std::endian::little, "save_npy writes little-endian numbers");

namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr int64_t first_bytes = 10;               // before the header of version 1
constexpr int64_t max_npy_header_bytes = 0xffff;  // of version 1; ours need some hundred

struct TypeName {
  DType dtype;
  std::string_view name;  // after the character for the byte order
};
constexpr TypeName type_names[] = {{f32, "f4"},     {f64, "f8"},  {f16, "f2"}, {i64, "i8"}, {u8, "u1"},
                                   {boolean, "b1"}, {bf16, "V2"}, {i16, "i2"}, {u16, "u2"}, {i32, "i4"}};

struct NpyHeader {
  DType dtype = f32;
  bool big_endian = false, fortran_order = false;
  Shape shape;
};

/// Reads the dictionary, and refuses everything else that Python could mean there.
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, const std::string& where) : rest_(text), where_(where) {}

  NpyHeader read() {
    std::set<std::string_view> keys;
    require("{", "the header is a dictionary");
    while (!accept("}")) {
      const std::string_view key = read_text("a key of the header is a text");
      refuse_unless(keys.insert(key).second, "no key of the header comes twice", key);
      require(":", "a ':' follows each key");
      if (key == "descr")
        read_descr();
      else if (key == "fortran_order")
        read_order();
      else if (key == "shape")
        read_shape();
      else
        refuse("the keys of the header are descr, fortran_order and shape", key);
      if (!accept(",") && !rest_.starts_with('}')) refuse("a ',' or '}' follows each value", rest_);
    }
    refuse_unless(keys.size() == 3, "the header has descr, fortran_order and shape",
                  str(keys.size(), " of them"));
    skip_blanks();
    refuse_unless(rest_.empty(), "only blanks follow the dictionary", rest_);
    return header_;
  }

 private:
  void read_descr() {
    const std::string_view descr = read_text("descr is a text (records of several dtypes are not supported)");
    for (const TypeName& type : type_names) {
      if (descr.empty() || descr.substr(1) != type.name) continue;
      const bool is_number = type.dtype != bf16 && size_of(type.dtype) > 1;
      if (descr[0] != '<' && descr[0] != (is_number ? '>' : '|')) continue;
      header_.dtype = type.dtype;
      header_.big_endian = descr[0] == '>';
      return;
    }
    refuse("descr is <f4, <f8, <f2, <i8, <i4, <i2, <u2, |u1, |b1 or <V2 (bfloat16), or one of these with >",
           descr);
  }

  void read_order() {
    header_.fortran_order = accept("True");
    if (!header_.fortran_order) require("False", "fortran_order is True or False");
  }

  void read_shape() {
    require("(", "shape is a tuple");
    bool comma = true;
    while (!accept(")")) {
      refuse_unless(comma, "a ',' or ')' follows each size", rest_);
      refuse_unless(header_.shape.rank() < max_rank, "an array has at most 8 dimensions", rest_);
      header_.shape.push_back(read_size());
      comma = accept(",");
    }
    refuse_unless(comma || header_.shape.rank() != 1, "shape is a tuple", "a number in parentheses");
  }

  int64_t read_size() {
    skip_blanks();
    int64_t size = -1;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
    refuse_unless(error == std::errc() && size >= 0, "sizes are whole numbers from 0 to 2^63 - 1", rest_);
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return size;
  }

  std::string_view read_text(const char* rule) {
    skip_blanks();
    const bool quoted = rest_.starts_with('\'') || rest_.starts_with('"');
    const size_t end = quoted ? rest_.find(rest_[0], 1) : rest_.npos;
    refuse_unless(end != rest_.npos, rule, rest_);
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool accept(std::string_view token) {
    skip_blanks();
    const bool found = rest_.starts_with(token);
    if (found) rest_.remove_prefix(token.size());
    return found;
  }
  void require(std::string_view token, const char* rule) { refuse_unless(accept(token), rule, rest_); }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  void refuse_unless(bool ok, const char* rule, std::string_view got) const {
    if (!ok) refuse(rule, got);
  }
  [[noreturn]] void refuse(const char* rule, std::string_view got) const {
    throw IoError(str(where_, ": ", rule, ", got ", nn::detail::in_quotes(got)));
  }

  std::string_view rest_;
  const std::string& where_;
  NpyHeader header_;
};

/// Reads the header and the bytes before it; `bytes` counts those that remain.
NpyHeader read_header(const nn::detail::Source& read, int64_t& bytes, const std::string& where) {
  const auto take = [&](int64_t count) {
    check<IoError>(count <= bytes, where, ": the header must end within the file, got ", bytes,
                   " bytes where ", count, " are needed");
    std::string text(static_cast<size_t>(count), '\0');
    read(text.data(), count);
    bytes -= count;
    return text;
  };
  const std::string start = take(8);
  check<IoError>(start.starts_with(magic), where, ": the file starts with \\x93NUMPY, got ",
                 nn::detail::in_quotes(start), " (is it an .npy file?)");
  const int major = static_cast<uint8_t>(start[6]), minor = static_cast<uint8_t>(start[7]);
  check<IoError>(major >= 1 && major <= 3 && minor == 0, where, ": versions 1.0, 2.0 and 3.0 are known, got ",
                 major, '.', minor);
  const std::string length = take(major == 1 ? 2 : 4);
  const auto count = static_cast<int64_t>(nn::detail::number_at(length, 0, length.size()));
  check<IoError>(count <= max_npy_header_bytes, where, ": the header has at most ", max_npy_header_bytes,
                 " bytes, got ", count);
  return NpyHeaderReader(take(count), where).read();
}

/// Reads an array of `bytes`, header included.
Tensor read_array(const nn::detail::Source& read, int64_t bytes, const std::string& where) {
  const NpyHeader header = read_header(read, bytes, where);
  const int64_t size = size_of(header.dtype);
  check<IoError>(is_countable(header.shape, size), where, ": the elements of shape ", header.shape, " of ",
                 header.dtype, " overflow 64 bits");
  const int64_t needed = checked_numel("load_npy", header.shape) * size;
  check<IoError>(needed == bytes, where, ": the elements of shape ", header.shape, " of ", header.dtype,
                 " are ", needed, " bytes, got ", bytes);

  Shape in_file = header.shape;
  if (header.fortran_order) std::reverse(in_file.begin(), in_file.end());
  Tensor t = detail::empty_for("load_npy", in_file, {header.dtype});
  auto* data = static_cast<unsigned char*>(t.impl()->data());
  if (bytes > 0) read(data, bytes);
  if (header.big_endian) {
    for (int64_t i = 0; i < bytes; i += size) std::reverse(data + i, data + i + size);
  }
  if (header.dtype == boolean) {
    const auto* bad = std::find_if(data, data + bytes, [](unsigned char b) { return b > 1; });
    check<IoError>(bad == data + bytes, where, ": elements of |b1 are 0 or 1, got ",
                   bad == data + bytes ? 0 : int{*bad});
  }
  if (!header.fortran_order) return t;
  Shape strides = t.strides();
  std::reverse(strides.begin(), strides.end());
  return detail::alias(t, 0, header.shape, strides);
}

/// Calls read(stream, bytes, where) for the regular file at `path`.
template <class F>
auto with_file(const char* function, const std::filesystem::path& path, F read) {
  nn::detail::InputFile file(function, path);
  return read(file.stream, file.bytes, str(function, ": ", path.string()));
}

/// All bytes of the file before the elements. NumPy aligns these to 64.
std::string format_header(const Tensor& t) {
  const auto* type = std::find_if(std::begin(type_names), std::end(type_names),
                                  [&](const TypeName& known) { return known.dtype == t.dtype(); });
  check<DTypeError>(type != std::end(type_names), "save_npy: corrupt dtype value");
  const bool is_byte = size_of(t.dtype()) == 1;
  std::string sizes;
  for (const int64_t size : t.shape()) sizes += str(sizes.empty() ? "" : " ", size, ",");
  if (t.rank() > 1) sizes.pop_back();
  std::string header = str("{'descr': '", is_byte ? '|' : '<', type->name,
                           "', 'fortran_order': False, 'shape': (", sizes, "), }");
  header.append(63 - (first_bytes + header.size()) % 64, ' ') += '\n';
  const char length[] = {static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return std::string(magic) + std::string("\x01\x00", 2) + std::string(length, 2) + header;
}

}  // namespace

Tensor nn::detail::read_npy(std::istream& in, int64_t bytes, const std::string& where) {
  return read_array([&](void* to, int64_t count) { read_exactly(in, to, count, where); }, bytes, where);
}

std::map<std::string, Tensor> nn::detail::read_npz(std::istream& in, int64_t bytes,
                                                   const std::string& where) {
  constexpr std::string_view ending = ".npy";
  std::map<std::string, Tensor> arrays;
  for (const ZipMember& member : read_zip_directory(in, bytes, where)) {
    const std::string here = str(where, ": member ", in_quotes(member.name));
    check<IoError>(member.name.ends_with(ending), here, ": an .npz file holds .npy files only");
    read_zip_member(in, member, here, [&](const Source& read) {
      arrays[member.name.substr(0, member.name.size() - ending.size())] =
          read_array(read, member.bytes, here);
    });
  }
  return arrays;
}

Tensor load_npy(const std::filesystem::path& path, Device device) {
  return with_file("load_npy", path, nn::detail::read_npy).to(device);
}

std::map<std::string, Tensor> load_npz(const std::filesystem::path& path, Device device) {
  auto arrays = with_file("load_npz", path, nn::detail::read_npz);
  for (auto& [name, t] : arrays) t = t.to(device);
  return arrays;
}

void save_npy(const std::filesystem::path& path, const Tensor& t) {
  detail::check_defined("save_npy", "t", t);
  const std::string header = format_header(t);
  const Tensor dense = t.detach().contiguous().to(Device::cpu());
  nn::detail::AtomicFile file("save_npy", path);
  file.write(header.data(), header.size());
  file.write(dense.impl()->data(), static_cast<size_t>(dense.numel() * size_of(dense.dtype())));
  file.commit();
}

}  // namespace vox

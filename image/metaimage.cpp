// MetaImage (.mha, and .mhd with a data file): lines `Key = value`, then the voxels, x fastest, channels
// innermost.
#include <voxgrad/core/print.h>

#include <algorithm>
#include <map>
#include <optional>

#include "voxels.h"

namespace vox::detail {

namespace {

constexpr std::pair<const char*, Stored> types[] = {
    {"MET_CHAR", Stored::i8},       {"MET_UCHAR", Stored::u8},       {"MET_SHORT", Stored::i16},
    {"MET_USHORT", Stored::u16},    {"MET_INT", Stored::i32},        {"MET_UINT", Stored::u32},
    {"MET_LONG_LONG", Stored::i64}, {"MET_ULONG_LONG", Stored::u64}, {"MET_FLOAT", Stored::f32},
    {"MET_DOUBLE", Stored::f64}};

/// The header's fields; those with several names have the first.
class Fields {
 public:
  explicit Fields(ImageInput& in) : in_(in) {
    while (!all_.contains("ElementDataFile")) {
      const std::string line = in.line();
      const size_t equals = line.find('=');
      in.require(equals != std::string::npos, "not a MetaImage: a line of the header has no '='");
      std::string key(trimmed(std::string_view(line).substr(0, equals)));
      if (key == "Position" || key == "Origin") key = "Offset";
      if (key == "Rotation" || key == "Orientation") key = "TransformMatrix";
      if (key == "ElementByteOrderMSB") key = "BinaryDataByteOrderMSB";
      all_[key] = trimmed(std::string_view(line).substr(equals + 1));
    }
  }

  std::string text(const char* key, const char* otherwise) const {
    const auto found = all_.find(key);
    return found == all_.end() ? otherwise : found->second;
  }
  bool flag(const char* key, const char* otherwise = "False") const {
    const std::string value = text(key, otherwise);
    in_.require(value == "True" || value == "False", str(key, " must be True or False, got ", value));
    return value == "True";
  }
  int64_t whole(const char* key, const char* otherwise) const { return wholes(key, otherwise, 1)[0]; }
  std::vector<int64_t> wholes(const char* key, const char* otherwise, size_t count) const {
    return counted(key, whole_numbers(in_, key, text(key, otherwise)), count);
  }
  std::vector<double> reals(const char* key, const char* otherwise, size_t count) const {
    return counted(key, real_numbers(in_, key, text(key, otherwise)), count);
  }

 private:
  template <class T>
  std::vector<T> counted(const char* key, std::vector<T> numbers, size_t count) const {
    in_.require(numbers.size() == count, str(key, " must have ", count, " numbers, got ", numbers.size()));
    return numbers;
  }

  const ImageInput& in_;
  std::map<std::string, std::string> all_;
};

Stored stored_of(const ImageInput& in, const std::string& name) {
  for (const auto& [known, stored] : types) {
    if (name == known) return stored;
  }
  in.refuse("ElementType " + name + " is not read; MET_CHAR to MET_ULONG_LONG, MET_FLOAT and MET_DOUBLE are");
}

void set_geometry(const Fields& fields, size_t rank, Image& image) {
  const bool flat = rank == 2;
  const auto spacing = fields.reals("ElementSpacing", flat ? "1 1" : "1 1 1", rank);
  const auto offset = fields.reals("Offset", flat ? "0 0" : "0 0 0", rank);
  const auto matrix = fields.reals("TransformMatrix", flat ? "1 0 0 1" : "1 0 0 0 1 0 0 0 1", rank * rank);
  for (size_t x = 0; x < rank; ++x) {  // the first axis of the file is W
    image.spacing[2 - x] = spacing[x];
    image.origin[x] = offset[x];
    for (size_t k = 0; k < rank; ++k) image.direction[2 - x][k] = matrix[x * rank + k];
  }
}

}  // namespace

Image read_metaimage(const std::filesystem::path& path, bool keeps_dtype) {
  ImageInput header(path);
  const Fields fields(header);
  header.require(fields.text("ObjectType", "Image") == "Image", "not a MetaImage: ObjectType must be Image");
  const int64_t rank = fields.whole("NDims", "0");
  header.require(rank == 2 || rank == 3, str("NDims must be 2 or 3, got ", rank));
  header.require(fields.flag("BinaryData", "True"), "text data (BinaryData = False) is not read");
  const int64_t channels = fields.whole("ElementNumberOfChannels", "1");
  std::vector<int64_t> sizes = fields.wholes("DimSize", "", static_cast<size_t>(rank));
  std::reverse(sizes.begin(), sizes.end());
  if (channels != 1) sizes.push_back(channels);
  const VoxelFormat format{stored_of(header, fields.text("ElementType", "")),
                           fields.flag("BinaryDataByteOrderMSB"), keeps_dtype};

  Image image;
  set_geometry(fields, static_cast<size_t>(rank), image);
  const std::string file = fields.text("ElementDataFile", "");
  std::optional<ImageInput> beside;
  if (file != "LOCAL") beside.emplace(data_file(header, path, file));
  ImageInput& in = beside ? *beside : header;
  header.require(fields.whole("HeaderSize", "0") == 0, "HeaderSize must be 0");
  if (fields.flag("CompressedData")) in.decompress();
  image.data = as_volume(read_voxels(in, sizes, format), channels == 1 ? -1 : rank);
  return image;
}

void write_metaimage(const std::filesystem::path& path, const Image& image) {
  std::string matrix, offset, spacing, sizes;
  for (int axis = 2; axis >= 0; --axis) {  // x first
    for (const double cosine : image.direction[axis]) matrix += ' ' + exact_text(cosine);
    offset += ' ' + exact_text(image.origin[2 - axis]);
    spacing += ' ' + exact_text(image.spacing[axis]);
    sizes += str(' ', image.data.size(axis - 3));
  }
  const bool channels = image.data.rank() == 4;
  std::string type;
  for (const auto& [name, stored] : types) {
    if (stored == stored_as(image.data.dtype())) type = name;
  }
  std::string head = "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n";
  head += "CompressedData = False\nTransformMatrix =" + matrix + "\nOffset =" + offset;
  head += "\nCenterOfRotation = 0 0 0\nElementSpacing =" + spacing + "\nDimSize =" + sizes;
  if (channels) head += str("\nElementNumberOfChannels = ", image.data.size(0));
  head += "\nElementType = " + type + "\nElementDataFile = LOCAL\n";

  ImageOutput out(path);
  out.write(head.data(), static_cast<int64_t>(head.size()));
  write_voxels(out, channels ? image.data.permute({1, 2, 3, 0}) : image.data);
  out.commit();
}

}  // namespace vox::detail

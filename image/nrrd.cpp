// NRRD (.nrrd, and .nhdr with a data file): lines `field: value` up to an empty one, then the voxels, the
// first axis fastest. Read here and not by teem, whose last release is of 2012 and which allocates what a
// header asks for.
#include <voxgrad/core/print.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "voxels.h"

namespace vox::detail {

namespace {

constexpr std::pair<const char*, Stored> types[] = {
    {"int8", Stored::i8},          {"signed char", Stored::i8},
    {"int8_t", Stored::i8},        {"uint8", Stored::u8},
    {"uchar", Stored::u8},         {"unsigned char", Stored::u8},
    {"uint8_t", Stored::u8},       {"int16", Stored::i16},
    {"short", Stored::i16},        {"int16_t", Stored::i16},
    {"signed short", Stored::i16}, {"uint16", Stored::u16},
    {"ushort", Stored::u16},       {"unsigned short", Stored::u16},
    {"uint16_t", Stored::u16},     {"int32", Stored::i32},
    {"int", Stored::i32},          {"int32_t", Stored::i32},
    {"signed int", Stored::i32},   {"uint32", Stored::u32},
    {"uint", Stored::u32},         {"unsigned int", Stored::u32},
    {"uint32_t", Stored::u32},     {"int64", Stored::i64},
    {"longlong", Stored::i64},     {"long long", Stored::i64},
    {"int64_t", Stored::i64},      {"uint64", Stored::u64},
    {"ulonglong", Stored::u64},    {"unsigned long long", Stored::u64},
    {"uint64_t", Stored::u64},     {"float", Stored::f32},
    {"double", Stored::f64}};

using Fields = std::map<std::string, std::string>;

Fields fields_of(ImageInput& in) {
  in.require(in.line().starts_with("NRRD000"), "not a NRRD file");
  Fields fields;
  const auto detached = [&] { return fields.contains("data file") || fields.contains("datafile"); };
  for (std::string line; !(line = in.line()).empty();) {
    const size_t colon = line.find(':');
    if (line[0] == '#') continue;
    in.require(colon != std::string::npos, "a line of the header has no ':'");
    if (line.substr(colon).starts_with(":=")) continue;  // a pair of the user's
    fields[line.substr(0, colon)] = trimmed(std::string_view(line).substr(colon + 1));
    if (detached() && in.at_end()) break;
  }
  for (const char* skip : {"line skip", "lineskip", "byte skip", "byteskip"})
    in.require(!fields.contains(skip) || fields[skip] == "0", str("'", skip, "' must be 0"));
  return fields;
}

std::string field(const Fields& fields, const char* name, const std::string& otherwise = "") {
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : found->second;
}

/// The vectors of `(1,0,0) none (0,1,0)`; an empty one for none.
std::vector<std::vector<double>> vectors(const ImageInput& in, const std::string& name, std::string text) {
  std::vector<std::vector<double>> all;
  while (!trimmed(text).empty()) {
    text = trimmed(text);
    if (text.starts_with("none")) {
      all.emplace_back();
      text.erase(0, 4);
      continue;
    }
    const size_t close = text.find(')');
    in.require(text[0] == '(' && close != std::string::npos, "'" + name + "' must have vectors like (1,0,0)");
    std::string inside = text.substr(1, close - 1);
    std::replace(inside.begin(), inside.end(), ',', ' ');
    all.push_back(real_numbers(in, name, inside));
    text.erase(0, close + 1);
  }
  return all;
}

/// For x and y: -1 if the file's run the other way.
std::pair<double, double> signs_of(const ImageInput& in, std::string space) {
  std::transform(space.begin(), space.end(), space.begin(), [](unsigned char c) { return std::tolower(c); });
  if (space.empty() || space == "left-posterior-superior" || space == "lps") return {1, 1};
  if (space == "right-anterior-superior" || space == "ras") return {-1, -1};
  if (space == "left-anterior-superior" || space == "las") return {1, -1};
  in.refuse("space '" + space +
            "' is not read; left-posterior-superior, right- and left-anterior-superior are");
}

/// The geometry; returns the axis of the file that has channels, or -1.
int set_geometry(const ImageInput& in, const Fields& fields, size_t rank, Image& image) {
  const auto sign = signs_of(in, field(fields, "space"));
  auto axes = vectors(in, "space directions", field(fields, "space directions"));
  if (axes.empty()) {
    in.require(rank <= 3, "an image of 4 dimensions needs 'space directions'");
    const std::vector<double> spacings = real_numbers(in, "spacings", field(fields, "spacings"));
    in.require(spacings.empty() || spacings.size() == rank, str("'spacings' must have ", rank, " numbers"));
    for (size_t i = 0; i < rank; ++i) {
      axes.push_back({0, 0, 0});
      axes[i][i] = spacings.empty() || !std::isfinite(spacings[i]) ? 1 : spacings[i];
    }
  }
  in.require(axes.size() == rank, str("'space directions' must have ", rank, " vectors, got ", axes.size()));
  int channels = -1, axis = 3;
  for (size_t i = 0; i < rank; ++i) {
    if (axes[i].empty()) {
      in.require(channels < 0, "more than one axis has no direction");
      channels = static_cast<int>(i);
      continue;
    }
    in.require(axis > 0 && axes[i].size() <= 3, "an image has 2 or 3 axes in space, of 2 or 3 numbers each");
    axes[i].resize(3);
    const double length = std::hypot(axes[i][0], axes[i][1], axes[i][2]);
    in.require(length > 0 && std::isfinite(length), "a direction in space has no length");
    image.spacing[--axis] = length;
    image.direction[axis] = {sign.first * axes[i][0] / length, sign.second * axes[i][1] / length,
                             axes[i][2] / length};
  }
  in.require(axis <= 1, "an image has 2 or 3 axes in space");
  const auto origin = vectors(in, "space origin", field(fields, "space origin"));
  if (!origin.empty()) {
    in.require(origin[0].size() == 2 || origin[0].size() == 3, "'space origin' must be one vector");
    image.origin = {sign.first * origin[0][0], sign.second * origin[0][1],
                    origin[0].size() == 3 ? origin[0][2] : 0};
  }
  return channels;
}

}  // namespace

Image read_nrrd(const std::filesystem::path& path, bool keeps_dtype) {
  ImageInput header(path);
  const Fields fields = fields_of(header);
  std::vector<int64_t> sizes = whole_numbers(header, "sizes", field(fields, "sizes"));
  header.require(sizes.size() >= 2 && sizes.size() <= 4,
                 str("an image has 2 to 4 dimensions, 'sizes' has ", sizes.size()));
  VoxelFormat format{.keeps_dtype = keeps_dtype};
  const auto* type = std::find_if(std::begin(types), std::end(types),
                                  [&](const auto& t) { return field(fields, "type") == t.first; });
  header.require(type != std::end(types), "type '" + field(fields, "type") + "' is not read");
  format.type = type->second;
  const std::string endian = field(fields, "endian", "little");
  header.require(endian == "little" || endian == "big", "endian must be little or big");
  format.swapped = endian == "big";

  Image image;
  const auto rank = static_cast<int>(sizes.size());
  const int channels = set_geometry(header, fields, sizes.size(), image);
  const std::string file = field(fields, "data file", field(fields, "datafile"));
  std::optional<ImageInput> beside;
  if (!file.empty()) beside.emplace(data_file(header, path, file));
  ImageInput& in = beside ? *beside : header;
  const std::string encoding = field(fields, "encoding");
  header.require(encoding == "raw" || encoding == "gzip" || encoding == "gz",
                 "encoding must be raw or gzip, got '" + encoding + "'");
  if (encoding != "raw") in.decompress();
  std::reverse(sizes.begin(), sizes.end());
  image.data = as_volume(read_voxels(in, sizes, format), channels < 0 ? -1 : rank - 1 - channels);
  return image;
}

void write_nrrd(const std::filesystem::path& path, const Image& image) {
  const auto vector = [](const Image::Vector& v, double scale) {
    return '(' + exact_text(v[0] * scale) + ',' + exact_text(v[1] * scale) + ',' + exact_text(v[2] * scale) +
           ')';
  };
  const bool channels = image.data.rank() == 4;
  std::string sizes, directions, kinds;
  for (int axis = 2; axis >= 0; --axis) {
    sizes += str(' ', image.data.size(axis - 3));
    directions += ' ' + vector(image.direction[axis], image.spacing[axis]);
    kinds += " domain";
  }
  if (channels) sizes += str(' ', image.data.size(0)), directions += " none", kinds += " list";
  std::string type;
  for (const auto& [name, stored] : types) {
    if (type.empty() && stored == stored_as(image.data.dtype())) type = name;
  }
  const std::string head = str(
      "NRRD0004\ntype: ", type, "\ndimension: ", image.data.rank(),
      "\nspace: left-posterior-superior\nsizes:", sizes, "\nspace directions:", directions, "\nkinds:", kinds,
      "\nendian: little\nencoding: gzip\nspace origin: ", vector(image.origin, 1), "\n\n");
  ImageOutput out(path);
  out.write(head.data(), static_cast<int64_t>(head.size()));
  out.compress();
  write_voxels(out, image.data);
  out.commit();
}

}  // namespace vox::detail

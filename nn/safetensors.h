#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <voxgrad/core/dtype.h>
#include <voxgrad/core/shape.h>

/// The safetensors format: where in a file each tensor is.
///
///     8 bytes          length n of the header, little-endian
///     n bytes          JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, ...}
///     the rest         the tensors' elements, row-major and little-endian, without gaps
namespace vox::nn::detail {

inline constexpr int64_t max_header_bytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  DType dtype = f32;
  Shape shape;
  int64_t begin = 0, end = 0;  ///< bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  ///< in the order of their bytes
};

/// Length and header, padded with spaces so that the data starts at a multiple of 8. For the same entries in
/// the same order, the bytes equal those of the format's reference implementation. Throws ValueError if a
/// text is not UTF-8 or the header exceeds max_header_bytes.
std::string format_header(const SafetensorsHeader& header);

/// The length of the header, given the first 8 bytes of a file of `file_bytes`. Throws IoError that starts
/// with `where` unless it is at most max_header_bytes and lies within the file.
size_t parse_header_length(const std::string& where, const std::string& first, int64_t file_bytes);

/// Parses the header of a file with `data_bytes` after it. Throws IoError that starts with `where` unless it
/// is one UTF-8 JSON object that starts with '{', without duplicate or unknown names at any level; every
/// number is a plain integer >= 0; dtypes are known; no rank is above 8; products of sizes fit 64 bits; and
/// the entries cover the data from 0 to its end without holes or overlaps, each with the bytes of its dtype
/// and shape.
SafetensorsHeader parse_header(const std::string& where, std::string_view json, int64_t data_bytes);

/// `text` for messages: quoted, and cut if it is long.
std::string in_quotes(std::string_view text);

}  // namespace vox::nn::detail

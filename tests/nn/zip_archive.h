#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vox::testing {

struct ArchiveOptions {
  std::string comment = {};
  bool zip64 = false;    ///< all sizes and places in fields of 64 bits
  bool overlap = false;  ///< the directory names the first member's place for all
};

/// A zip archive of stored members, each a name and its bytes.
inline std::string archive(const std::vector<std::pair<std::string, std::string>>& members,
                           const ArchiveOptions& options = {}) {
  const auto number = [](uint64_t value, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
  };
  const auto crc = [](const std::string& bytes) {
    uint32_t state = ~0u;
    for (const char c : bytes) {
      state ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ (state & 1 ? 0xedb88320u : 0);
    }
    return ~state;
  };
  const uint64_t in_zip64 = 0xffffffff;
  std::string all, directory;
  for (const auto& [name, bytes] : members) {
    const uint64_t begin = options.overlap ? 0 : all.size(), size = bytes.size();
    const std::string extra =
        options.zip64 ? number(1, 2) + number(24, 2) + number(size, 8) + number(size, 8) + number(begin, 8)
                      : "";
    const uint64_t short_size = options.zip64 ? in_zip64 : size;
    // Version, flags, method, time and date; checksum, sizes, length of the name.
    const std::string common = number(20, 2) + number(0, 2) + number(0, 2) + number(0, 4) +
                               number(crc(bytes), 4) + number(short_size, 4) + number(short_size, 4) +
                               number(name.size(), 2);
    all += "PK\x03\x04" + common + number(0, 2) + name + bytes;
    directory += "PK\x01\x02" + number(20, 2) + common + number(extra.size(), 2) + number(0, 2) +
                 number(0, 8) + number(options.zip64 ? in_zip64 : begin, 4) + name + extra;
  }
  const uint64_t begin = all.size();
  all += directory;
  if (options.zip64) {
    const uint64_t end64 = all.size();
    all += "PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) +
           number(members.size(), 8) + number(members.size(), 8) + number(directory.size(), 8) +
           number(begin, 8);
    all += "PK\x06\x07" + number(0, 4) + number(end64, 8) + number(1, 4);
  }
  all += "PK\x05\x06" + number(0, 4) + number(members.size(), 2) + number(members.size(), 2) +
         number(directory.size(), 4) + number(begin, 4) + number(options.comment.size(), 2) + options.comment;
  return all;
}

}  // namespace vox::testing

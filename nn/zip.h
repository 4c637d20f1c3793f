#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <vector>

/// Reads zip archives, as far as .npz files need it: stored and deflated members, and zip64, the extension
/// for sizes of 64 bits. Nothing is unpacked to disk.
namespace vox::nn::detail {

/// Writes the next `bytes` bytes of a stream to `to`. Throws IoError if there are fewer.
using Source = std::function<void(void* to, int64_t bytes)>;

/// One member, as the directory at the end of the archive describes it.
struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  int64_t packed_bytes = 0, bytes = 0;
  int64_t begin = 0;  ///< of its data, counted from the start of the archive
};

/// The members of an archive of `archive_bytes`, in the order of its directory. Throws IoError that starts
/// with `where` unless the directory and every member lie within the archive; no two members overlap; no name
/// comes twice, is absolute, or has a part ".."; members are neither encrypted nor packed in another way than
/// deflate; stored members have one size, and no deflated one claims more than deflate can pack.
std::vector<ZipMember> read_zip_directory(std::istream& archive, int64_t archive_bytes,
                                          const std::string& where);

/// Calls `read` with a source of the member's bytes. Throws IoError that starts with `where` if it reads more
/// or less than all of them, or if the checksum is wrong.
void read_zip_member(std::istream& archive, const ZipMember& member, const std::string& where,
                     const std::function<void(const Source&)>& read);

}  // namespace vox::nn::detail

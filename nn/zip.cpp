#include <voxgrad/core/check.h>
#include <voxgrad/nn/atomic_file.h>
#include <voxgrad/nn/safetensors.h>
#include <voxgrad/nn/zip.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#if VOXGRAD_HAS_ZLIB
#include <zlib.h>
#endif

namespace vox::nn::detail {

namespace {

// Sizes of the fixed parts of records, and their signatures (PKWARE's APPNOTE.TXT, section 4.3).
constexpr int64_t local_bytes = 30, entry_bytes = 46, end_bytes = 22, locator_bytes = 20, end64_bytes = 56;
constexpr uint64_t local_signature = 0x04034b50, entry_signature = 0x02014b50, end_signature = 0x06054b50,
                   locator_signature = 0x07064b50, end64_signature = 0x06064b50;
constexpr int64_t longest_comment = 0xffff;
constexpr uint64_t in_zip64 = 0xffffffff;  // says that the number is in a field of 64 bits

/// Reads parts of an archive, and throws unless they lie within.
class Archive {
 public:
  Archive(std::istream& in, int64_t bytes, const std::string& where)
      : in_(in), bytes_(bytes), where_(where) {}

  std::string read(uint64_t begin, uint64_t size, const char* what) {
    const auto all = static_cast<uint64_t>(bytes_);
    refuse_unless(begin <= all && size <= all - begin, "every record lies within the archive",
                  str(what, " of ", size, " bytes at ", begin, " in ", bytes_, " bytes"));
    std::string text(size, '\0');
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(begin));
    read_exactly(in_, text.data(), static_cast<int64_t>(size), str(where_, ": ", what, " at ", begin));
    return text;
  }

  template <class Got>
  void refuse_unless(bool ok, const char* rule, const Got& got) const {
    check<IoError>(ok, where_, ": ", rule, ", got ", got);
  }

 private:
  std::istream& in_;
  int64_t bytes_;
  const std::string& where_;
};

/// Where the directory is.
struct Directory {
  uint64_t begin, bytes, members;
};

Directory find_directory(Archive& archive, int64_t archive_bytes) {
  const int64_t tail_bytes = std::min(archive_bytes, end_bytes + longest_comment);
  const int64_t tail_begin = archive_bytes - tail_bytes;
  const std::string tail = archive.read(static_cast<uint64_t>(tail_begin), static_cast<uint64_t>(tail_bytes),
                                        "the end of the archive");
  int64_t at = tail_bytes - end_bytes;
  const auto is_end = [&](size_t i) {
    return number_at(tail, i, 4) == end_signature &&
           i + end_bytes + number_at(tail, i + 20, 2) == tail.size();
  };
  while (at >= 0 && !is_end(static_cast<size_t>(at))) --at;
  archive.refuse_unless(at >= 0, "a zip archive ends with its directory",
                        "no end of one (is it an .npz file?)");
  const auto end = std::string_view(tail).substr(static_cast<size_t>(at));
  Directory directory{number_at(end, 16, 4), number_at(end, 12, 4), number_at(end, 10, 2)};
  uint64_t disks = number_at(end, 4, 2) | number_at(end, 6, 2);

  const int64_t locator_begin = tail_begin + at - locator_bytes;
  if (locator_begin >= 0) {
    const std::string locator =
        archive.read(static_cast<uint64_t>(locator_begin), locator_bytes, "a locator");
    if (number_at(locator, 0, 4) == locator_signature) {
      const std::string end64 = archive.read(number_at(locator, 8, 8), end64_bytes, "the zip64 end");
      archive.refuse_unless(number_at(end64, 0, 4) == end64_signature, "a zip64 locator leads to a zip64 end",
                            "another record");
      directory = {number_at(end64, 48, 8), number_at(end64, 40, 8), number_at(end64, 32, 8)};
      disks = number_at(end64, 16, 4) | number_at(end64, 20, 4);
    }
  }
  archive.refuse_unless(disks == 0, "an archive is one file", "a part of several");
  return directory;
}

/// Replaces the numbers that are in_zip64 by those of the extra field.
void read_zip64(const Archive& archive, std::string_view extra, std::array<uint64_t*, 3> numbers,
                const std::string& name) {
  while (extra.size() >= 4) {
    const uint64_t id = number_at(extra, 0, 2), size = number_at(extra, 2, 2);
    archive.refuse_unless(size <= extra.size() - 4, "extra fields lie within their record", in_quotes(name));
    if (id == 1) {
      size_t at = 4;
      for (uint64_t* n : numbers) {
        if (*n != in_zip64) continue;
        archive.refuse_unless(at + 8 <= 4 + size, "a zip64 field has the numbers that its record lacks",
                              in_quotes(name));
        *n = number_at(extra, at, 8);
        at += 8;
      }
      return;
    }
    extra.remove_prefix(4 + size);
  }
}

bool is_plain(const std::string& name) {
  if (name.empty() || name[0] == '/' || name.find_first_of(std::string_view("\\\0", 2)) != name.npos)
    return false;
  const std::string framed = "/" + name + "/";
  return framed.find("/../") == framed.npos;
}

/// Table k has the checksums of one byte followed by k zero bytes.
constexpr auto crc_tables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xedb88320u : 0);
    tables[0][i] = value;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i)
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
  }
  return tables;
}();

/// The CRC-32 of zip over all bytes given so far.
class Checksum {
 public:
  void add(const void* data, int64_t bytes) {
    const auto* next = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; bytes -= 8, next += 8) {  // nearly five times as fast as one at a time
      uint32_t sum = 0;
      for (size_t i = 0; i < 8; ++i) {
        const uint32_t old = i < 4 ? state_ >> (8 * i) & 0xff : 0;
        sum ^= crc_tables[7 - i][next[i] ^ old];
      }
      state_ = sum;
    }
    for (; bytes > 0; --bytes, ++next) state_ = crc_tables[0][(state_ ^ *next) & 0xff] ^ (state_ >> 8);
  }
  uint32_t value() const { return ~state_; }

 private:
  uint32_t state_ = ~uint32_t{0};
};

#if VOXGRAD_HAS_ZLIB

/// Unpacks the member that begins at the stream's position.
class Inflater {
 public:
  Inflater(std::istream& in, int64_t packed_bytes, const std::string& where)
      : in_(in), left_(packed_bytes), where_(where) {
    // -15: a deflate stream with windows of 2^15 bytes, without zlib's own header.
    check<IoError>(inflateInit2(&z_, -15) == Z_OK, where_, ": zlib has no memory");
  }
  ~Inflater() { inflateEnd(&z_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void read(void* to, int64_t bytes) {
    auto* next = static_cast<unsigned char*>(to);
    while (bytes > 0) {
      const auto step = static_cast<uInt>(std::min<int64_t>(bytes, 1 << 30));
      z_.next_out = next;
      z_.avail_out = step;
      while (z_.avail_out > 0) inflate_some();
      next += step;
      bytes -= step;
    }
  }

 private:
  void inflate_some() {
    if (z_.avail_in == 0 && left_ > 0) {
      z_.avail_in = static_cast<uInt>(std::min<int64_t>(left_, std::ssize(buffer_)));
      z_.next_in = buffer_.data();
      read_exactly(in_, buffer_.data(), z_.avail_in, where_);
      left_ -= z_.avail_in;
    }
    const int result = inflate(&z_, Z_NO_FLUSH);
    const bool more = result == Z_OK || (result == Z_STREAM_END && z_.avail_out == 0);
    check<IoError>(more, where_, ": the deflated data are damaged or end too early");
  }

  std::istream& in_;
  int64_t left_;
  const std::string& where_;
  z_stream z_{};
  std::array<unsigned char, 1 << 16> buffer_;
};

#endif

}  // namespace

std::vector<ZipMember> read_zip_directory(std::istream& in, int64_t archive_bytes, const std::string& where) {
  Archive archive(in, archive_bytes, where);
  const Directory directory = find_directory(archive, archive_bytes);
  const std::string entries = archive.read(directory.begin, directory.bytes, "the directory");
  std::vector<ZipMember> members;
  std::set<std::string> names;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::string_view rest = entries;
  for (uint64_t i = 0; i < directory.members; ++i) {
    archive.refuse_unless(rest.size() >= entry_bytes && number_at(rest, 0, 4) == entry_signature,
                          "the directory has an entry for every member",
                          str(i, " entries for ", directory.members, " members"));
    const uint64_t name_bytes = number_at(rest, 28, 2), extra_bytes = number_at(rest, 30, 2),
                   all_bytes = entry_bytes + name_bytes + extra_bytes + number_at(rest, 32, 2);
    archive.refuse_unless(all_bytes <= rest.size(), "entries lie within the directory", str("entry ", i));
    ZipMember member;
    member.name = rest.substr(entry_bytes, name_bytes);
    archive.refuse_unless(is_plain(member.name), "names of members are relative and without '..' or '\\'",
                          in_quotes(member.name));
    archive.refuse_unless(names.insert(member.name).second, "no name of a member comes twice",
                          in_quotes(member.name));
    archive.refuse_unless((number_at(rest, 8, 2) & 1) == 0, "members are not encrypted",
                          in_quotes(member.name));
    const uint64_t method = number_at(rest, 10, 2);
    archive.refuse_unless(method == 0 || method == 8, "members are stored or deflated (methods 0 and 8)",
                          str("method ", method, " for ", in_quotes(member.name)));
    member.deflated = method == 8;
    member.crc = static_cast<uint32_t>(number_at(rest, 16, 4));
    uint64_t packed = number_at(rest, 20, 4), bytes = number_at(rest, 24, 4), local = number_at(rest, 42, 4);
    read_zip64(archive, rest.substr(entry_bytes + name_bytes, extra_bytes), {&bytes, &packed, &local},
               member.name);
    rest.remove_prefix(all_bytes);

    const std::string header = archive.read(local, local_bytes, "the header of a member");
    archive.refuse_unless(number_at(header, 0, 4) == local_signature, "the directory leads to members",
                          in_quotes(member.name));
    const uint64_t begin = local + local_bytes + number_at(header, 26, 2) + number_at(header, 28, 2);
    const auto all = static_cast<uint64_t>(archive_bytes);
    archive.refuse_unless(begin <= all && packed <= all - begin, "every member lies within the archive",
                          str(packed, " bytes at ", begin, " for ", in_quotes(member.name)));
    // Deflate packs at most 258 bytes into 2 bits.
    const bool possible = member.deflated ? bytes / 1032 <= packed : bytes == packed;
    archive.refuse_unless(possible, "the sizes of a member fit each other",
                          str(packed, " bytes that become ", bytes, " for ", in_quotes(member.name)));
    member.packed_bytes = static_cast<int64_t>(packed);
    member.bytes = static_cast<int64_t>(bytes);
    member.begin = static_cast<int64_t>(begin);
    ranges.emplace_back(static_cast<int64_t>(local), member.begin + member.packed_bytes);
    members.push_back(std::move(member));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    archive.refuse_unless(ranges[i - 1].second <= ranges[i].first, "members do not overlap",
                          str("two at byte ", ranges[i].first));
  return members;
}

void read_zip_member(std::istream& archive, const ZipMember& member, const std::string& where,
                     const std::function<void(const Source&)>& read) {
  archive.clear();
  archive.seekg(member.begin);
  Checksum checksum;
  int64_t left = member.bytes;
  const auto checked = [&](const Source& source) {
    read([&](void* to, int64_t bytes) {
      check<IoError>(bytes <= left, where, ": ends too early: needs ", bytes, " more bytes, got ", left);
      source(to, bytes);
      checksum.add(to, bytes);
      left -= bytes;
    });
  };
  if (member.deflated) {
#if VOXGRAD_HAS_ZLIB
    Inflater inflater(archive, member.packed_bytes, where);
    checked([&](void* to, int64_t bytes) { inflater.read(to, bytes); });
#else
    throw IoError(where +
                  ": is deflated, and this build of voxgrad has no zlib; save it with numpy.savez instead "
                  "of savez_compressed, or build voxgrad where CMake finds zlib");
#endif
  } else {
    checked([&](void* to, int64_t bytes) { read_exactly(archive, to, bytes, where); });
  }
  check<IoError>(left == 0, where, ": ", left, " bytes follow what was read");
  check<IoError>(checksum.value() == member.crc, where, ": the checksum is wrong; the file is damaged");
}

}  // namespace vox::nn::detail

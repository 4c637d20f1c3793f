#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace vox::nn::detail {

/// A regular file, opened for reading, and its size. Throws IoError; the message starts with `function`.
struct InputFile {
  InputFile(const char* function, const std::filesystem::path& path);
  int64_t bytes = 0;
  std::ifstream stream;
};

/// Reads the next `bytes` bytes of a stream. Throws IoError, which starts with `where`, if there are fewer.
void read_exactly(std::istream& in, void* to, int64_t bytes, const std::string& where);

/// The little-endian number of `size` bytes at `at`.
uint64_t number_at(std::string_view bytes, size_t at, size_t size);

/// The bytes of a file. Throws IoError; the message starts with `function`.
std::string read_whole(const char* function, const std::filesystem::path& path);

/// A file that appears complete and on disk, or not at all. It is written under a temporary name in the
/// same folder and renamed by commit(); without commit() it is removed, but a killed process leaves it
/// behind as `path`.tmpPID_NUMBER. If `path` is a symbolic link, the file that it leads to is replaced.
/// Throws IoError with the system's reason, or if `path` exists and is not a regular file; messages start
/// with `function`.
class AtomicFile {
 public:
  AtomicFile(const char* function, const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  const char* function_;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace vox::nn::detail

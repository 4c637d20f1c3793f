#pragma once

#include <filesystem>

namespace vox::nn::detail {

/// A file that appears under its name complete and on disk, or not at all: a new one beside it, renamed by
/// commit(). Without commit() nothing of it stays. A symbolic link stays: what it leads to is replaced. All
/// failures are IoErrors: with the system's reason, or because what has the name is not a regular file.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace vox::nn::detail

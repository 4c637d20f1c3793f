#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace vox::testing {

/// A folder for the files of one fuzzer, in memory where the system has such a file system. It disappears at
/// exit.
class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool in_memory = access(memory.c_str(), W_OK) == 0;
    path_ = ((in_memory ? memory : std::filesystem::temp_directory_path()) / "voxgrad_fuzz_XXXXXX").string();
    if (!mkdtemp(path_.data())) std::abort();
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  /// Writes the file `name` and returns its path.
  std::string write(const char* name, const uint8_t* data, size_t size) const {
    const std::string path = path_ + "/" + name;
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    if (!file.flush()) std::abort();
    return path;
  }

 private:
  std::string path_;
};

}  // namespace vox::testing

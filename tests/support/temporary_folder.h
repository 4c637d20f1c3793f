#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <stdlib.h>

namespace vox::testing {

/// A new folder that is removed with its contents at the end of its life.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "voxgrad_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  /// How many files, links and folders it holds at any depth.
  int64_t entries() const {
    const std::filesystem::recursive_directory_iterator all(path_);
    return std::distance(begin(all), end(all));
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// The message of the Refusal with which load(path) refuses a file of these bytes, or a note that it does
/// not.
template <class Refusal, class Load>
std::string refusal_of_file(Load load, const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);  // a new file: file systems flush one that is cut and written again
  write_bytes(path, bytes);
  try {
    load(path);
  } catch (const Refusal& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another exception) ") + error.what();
  }
  return "(it was loaded)";
}

}  // namespace vox::testing

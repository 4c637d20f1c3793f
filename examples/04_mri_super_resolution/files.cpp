#include "files.h"

#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace mri {

void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const std::filesystem::path&)>& write) {
  const std::string name =
      path.stem().string() + ".tmp" + std::to_string(getpid()) + path.extension().string();
  const std::filesystem::path temporary = path.parent_path() / name;
  std::error_code ignored;
  try {
    write(temporary);
  } catch (...) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (!error) return;
  std::filesystem::remove(temporary, ignored);
  throw std::runtime_error("write_atomically: cannot rename to " + path.string() + ": " + error.message());
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw std::runtime_error("write_text: cannot write " + temporary.string());
  });
}

}  // namespace mri

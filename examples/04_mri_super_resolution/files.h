// Files that are there whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace mri {

/// Calls `write` with a temporary name in the same folder and renames the result to `path`, so that a crash
/// never leaves half a file under the final name. The temporary file is removed if `write` throws. The
/// temporary name ends in the extension of `path`. Throws std::runtime_error if the rename fails.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const std::filesystem::path&)>& write);

/// `write_atomically` for a text.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace mri

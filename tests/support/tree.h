#pragma once

#include <gtest/gtest.h>

#include "tests/data_dir.h"
#include "tests/support/temporary_folder.h"

// The tree's own files, for tests that read code and documents.

namespace vox::testing {

inline const auto tree = std::filesystem::path(data_dir).parent_path().parent_path();

inline std::string read_in_tree(const std::filesystem::path& path) {
  EXPECT_TRUE(std::filesystem::is_regular_file(tree / path)) << path;
  return read_bytes(tree / path);
}

}  // namespace vox::testing

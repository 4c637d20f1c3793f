#define LLVMFuzzerTestOneInput fuzz_npy  // every fuzzer has a function of this name
#include "npy_fuzz.cpp"

#include "tests/data_dir.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

TEST(NpyFuzz, TheCorpusThrowsOnlyIoError) {
  const auto folder = std::filesystem::path(vox::testing::data_dir).parent_path() / "fuzz/corpus/npy";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NO_THROW(fuzz_npy(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
    ++files;
  }
  EXPECT_GE(files, 10);
}

#include <regex>

#include "tests/support/tree.h"

// cuda/ uses the terms that are standard for GPUs, or defined in the glossary of HACKING.md. These words were
// private ones, or had another meaning elsewhere. The comment says what to write instead.

namespace {

const char* const retired =
    "copy engine|"                           // TMA: in CUDA a copy engine is the DMA unit of cudaMemcpyAsync
    "brings?|"                               // load
    "orders? (the|a) (copy|copies|loads?)|"  // issue
    "slabs?|"                                // k-block
    "right_for|"                             // supports
    "pays|"                                  // its predicted time is less
    "\\w*by_eights|\\w*in_slices|long_march|small_f32|"  // the names of kernels that are gone
    "\\w+_take|\\w+_give";                               // gather, scatter_add

TEST(Words, CudaUsesStandardTerms) {
  const std::regex words("\\b(" + std::string(retired) + ")\\b"), kinds("\\.(cu|cuh|cpp|h|md)");
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(vox::testing::tree / "cuda")) {
    if (!std::regex_match(entry.path().extension().string(), kinds)) continue;
    ++files;
    std::ifstream file(entry.path());
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      EXPECT_FALSE(std::regex_search(line, words)) << entry.path().string() << ":" << number << ": " << line;
    }
  }
  EXPECT_GE(files, 100);
}

}  // namespace

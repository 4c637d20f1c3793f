#include <regex>

#include "tests/support/test.h"
#include "tests/support/tree.h"

// The documents quote real code: a block that follows a line `<!-- quote: path -->` must occur in that file,
// line for line. So readers see code that was compiled.

namespace {

using vox::testing::read_in_tree;
const auto& root = vox::testing::tree;

/// Lines without leading and trailing blanks, so that a quote may be indented differently.
std::string normalized(const std::string& text) {
  std::istringstream in(text);
  std::string out = "\n", line;
  while (std::getline(in, line)) {
    const size_t first = line.find_first_not_of(' '), last = line.find_last_not_of(' ');
    if (first != std::string::npos) out += line.substr(first, last - first + 1) + "\n";
  }
  return out;
}

int check_quotes(const std::string& document) {
  std::istringstream in(read_in_tree(document));
  int quotes = 0;
  const std::string mark = "<!-- quote: ";
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(mark, 0) != 0) continue;
    const std::string path = line.substr(mark.size(), line.find(" -->") - mark.size());
    std::getline(in, line);
    EXPECT_EQ(line.rfind("```", 0), 0u) << document << ": no code block after the quote of " << path;
    std::string block;
    while (std::getline(in, line) && line != "```") block += line + "\n";
    EXPECT_NE(normalized(read_in_tree(path)).find(normalized(block)), std::string::npos)
        << document << " quotes lines that are not in " << path << ":\n"
        << block;
    ++quotes;
  }
  return quotes;
}

TEST(Quotes, Readme) { EXPECT_GE(check_quotes("README.md"), 1); }
TEST(Quotes, Hacking) { EXPECT_GE(check_quotes("HACKING.md"), 5); }
TEST(Quotes, Faq) { EXPECT_GE(check_quotes("docs/faq.md"), 48); }
TEST(Quotes, Imaging) { EXPECT_GE(check_quotes("docs/imaging.md"), 5); }
TEST(Quotes, Parallel) { EXPECT_GE(check_quotes("docs/parallel.md"), 3); }
TEST(Quotes, Porting) { EXPECT_GE(check_quotes("docs/porting.md"), 6); }
TEST(Quotes, Watching) { EXPECT_GE(check_quotes("docs/watching.md"), 1); }

// A chapter NN_name.md of the book quotes its program and shows every line that the program prints.
TEST(Quotes, Book) {
  int chapters = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "docs/book/programs")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string name = entry.path().stem().string(), number = name.substr(0, 2);
    std::string chapter;
    for (const auto& document : std::filesystem::directory_iterator(root / "docs/book")) {
      if (document.path().extension() == ".md" && document.path().stem().string().rfind(number, 0) == 0)
        chapter = "docs/book/" + document.path().filename().string();
    }
    ASSERT_NE(chapter, "") << "no chapter for " << entry.path();
    EXPECT_GE(check_quotes(chapter), 2) << chapter;
    const std::string text = normalized(read_in_tree(chapter)), program = read_in_tree(entry.path());
    EXPECT_NE(text.find("docs/book/programs/" + name + ".cpp"), std::string::npos) << chapter;
    std::istringstream printed(normalized(read_in_tree("docs/book/programs/" + name + ".txt")));
    for (std::string line; std::getline(printed, line);) {
      if (line.empty()) continue;
      EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << chapter << " does not show: " << line;
    }
    EXPECT_LE(std::count(program.begin(), program.end(), '\n'), 60) << entry.path();
    ++chapters;
  }
  EXPECT_GE(chapters, 13);
}

// cuda/ uses the terms that are standard for GPUs, or defined in the glossary of HACKING.md. These words were
// private ones, or had another meaning elsewhere. The comment says what to write instead.

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

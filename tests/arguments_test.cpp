#include <regex>

#include "tests/support/test.h"
#include "tests/support/tree.h"

// In public declarations, numbers and flags are vox::Int, Real and Flag, and structs of options are given by
// name (core/arguments.h). This test reads the headers that voxgrad.h includes.

namespace {

using vox::testing::read_in_tree;

std::vector<std::string> public_headers() {
  const std::string all = read_in_tree("voxgrad.h");
  const std::regex include("#include <voxgrad/([^>]+)>");
  std::vector<std::string> headers;
  for (std::sregex_iterator i(all.begin(), all.end(), include), end; i != end; ++i) {
    if ((*i)[1] != "version.h") headers.push_back((*i)[1]);
  }
  return headers;
}

/// `text` without the lines between one that contains `begin` and the next that is `end`, with which it is
/// called.
template <class End>
std::string without(const std::string& text, const std::string& begin, const End& end) {
  std::istringstream in(text);
  std::string out, until;
  for (std::string line; std::getline(in, line);) {
    if (until.empty() && line.find(begin) != std::string::npos) until = end(line);
    if (until.empty() && line.find("std::function<") == std::string::npos)
      out += line.substr(0, line.find("//")) + "\n";
    if (!until.empty() && (line == until || line.rfind(until + " ", 0) == 0)) until.clear();
  }
  return out;
}

/// The text of a header without comments, namespaces `detail`, private parts of classes and types of
/// callbacks.
std::string declarations(const std::string& header) {
  const auto after_class = [](const std::string& line) {
    return std::string(line.find('p') - 1, ' ') + "};";
  };
  std::string text = without(read_in_tree(header), "detail {", [](auto&) { return std::string("}"); });
  text = without(text, "struct TensorImpl {", [](auto&) { return std::string("};"); });
  text = without(text, " private:", after_class);
  return without(text, " protected:", after_class);
}

/// Parameters of the given type, which begins with '(' or ',' and ends before ',' or ')'.
std::vector<std::string> parameters(const std::string& text, const std::string& type) {
  const std::regex parameter("[(,]\\s*((const )?(" + type + ")&? \\w+( = [^,()]+)?)(?=[,)])");
  std::vector<std::string> found;
  for (std::sregex_iterator i(text.begin(), text.end(), parameter), end; i != end; ++i)
    found.push_back((*i)[1]);
  return found;
}

TEST(Arguments, OfPublicCallsRefuseBoolsAndFractions) {
  int numbers = 0;
  for (const std::string& header : public_headers()) {
    if (header == "core/parallel.h") continue;  // the loops of kernels
    const std::string text = declarations(header);
    numbers += static_cast<int>(parameters(text, "Int|Real|std::optional<Int>").size());
    for (const std::string& found :
         parameters(text, "int64_t|int|double|float|std::optional<(int64_t|double)>"))
      ADD_FAILURE() << header << ": '" << found << "' is to be an Int or a Real";
    for (const std::string& found : parameters(text, "bool")) {
      if (found.find("keepdim") != std::string::npos)
        ADD_FAILURE() << header << ": '" << found << "' is to be a Flag";
    }
  }
  EXPECT_GE(numbers, 50);
}

// A bool beside a tensor is no number. Only calls that store or compare elements take one, as an Element.
TEST(Arguments, OnlyStoredElementsMayBeTrueOrFalse) {
  static_assert(!std::is_convertible_v<bool, vox::Scalar> && std::is_convertible_v<bool, vox::Element>);
  static_assert(!std::is_constructible_v<std::optional<vox::Scalar>, bool>);
  const std::set<std::string> store{"full", "full_like", "fill_", "pad", "masked_fill", "where", "eq", "ne"};
  const std::regex call("(\\w+)\\((?=[^;{]*\\bElement \\w)");
  std::set<std::string> found;
  for (const std::string& header : public_headers()) {
    const std::string text = declarations(header);
    for (std::sregex_iterator i(text.begin(), text.end(), call), end; i != end; ++i) found.insert((*i)[1]);
  }
  EXPECT_EQ(found, store);
}

TEST(Arguments, StructsOfOptionsAreGivenByName) {
  int structs = 0;
  const std::regex options("\n *struct \\w*(Options|Schedule|Slice) \\{\n([^\n]*)");
  for (const std::string& header : public_headers()) {
    const std::string text = declarations(header);
    for (std::sregex_iterator i(text.begin(), text.end(), options), end; i != end; ++i) {
      if (i->str().find("struct TensorOptions") != std::string::npos)
        continue;  // no value fits two of its members
      ++structs;
      EXPECT_NE((*i)[2].str().find("ByName by_name{};"), std::string::npos) << header << ":" << i->str();
    }
  }
  EXPECT_GE(structs, 25);
}

}  // namespace

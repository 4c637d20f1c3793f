#include <nlohmann/json.hpp>

#include "tests/support/test.h"
#include "web/language.h"

// The language of the page that `./run web` makes. The page itself is tested by `./run web test`.

namespace {

nlohmann::json result_of(const std::string& program) { return nlohmann::json::parse(vox::web::run(program)); }
std::string error_of(const std::string& program) { return result_of(program)["error"]; }
std::string output_of(const std::string& program) { return result_of(program)["output"]; }

TEST(WebLanguage, ComputesLikeTheLibrary) {
  EXPECT_EQ(output_of("print((1 + 2) * -3 / 4 - .5)"), "() -2.75\n");
  EXPECT_EQ(output_of("print(matmul([[1, 2], [3, 4]], [1, -1]) + 10)"), "(2,) [9, 9], norm 12.73\n");
  EXPECT_EQ(output_of("x = leaf([1, 2])\nrepeat 3 {\n  backward(sum(x * x * x))\n}\nprint(grad(x))"),
            "(2,) [9, 36], norm 37.11\n");
  EXPECT_EQ(output_of("x = leaf(3)\nzero_grad(x)\nbackward(x * x)\nstep(x, 0.5)\nprint(x)"), "() 0\n");
  EXPECT_EQ(output_of("print(conv3d(ones(1, 1, 3, 3, 3), ones(1, 1, 2, 2, 2), stride=2, padding=1))"),
            "(1,1,2,2,2) [1, 2, 2, 4, 2, 4, ...], norm 11.18\n");
}

TEST(WebLanguage, SaysWhichLineBeganAtWhichEvent) {
  const nlohmann::json result = result_of("# nothing\nx = leaf([1])\ny = exp(x)\nbackward(y)");
  EXPECT_EQ(result["lines"], nlohmann::json({{0, 1}, {0, 2}, {0, 3}, {1, 4}}));
  EXPECT_EQ(result["recording"]["nodes"].size(), 2u);
}

TEST(WebLanguage, ErrorsNameTheLineAndAreThoseOfTheLibrary) {
  for (const auto& [program, error] : std::vector<std::pair<std::string, std::string>>{
           {"x = 1\ny = x +", "line 2: expected a value before ''"},
           {"x = 1 )", "line 1: cannot read ')'"},
           {"x = [1, [2]]", "line 1: a list has numbers beside lists"},
           {"x = [[1], 2]", "line 1: a list has numbers beside lists"},
           {"x = [[1], [2, 3]]", "line 1: the lists have 1 and 2 elements"},
           {"print(y)", "line 1: nothing is called 'y'"},
           {"foo(1)", "line 1: there is no function 'foo'"},
           {"exp()", "line 1: exp: needs 1 arguments, got 0"},
           {"x = rand(1e30)", "line 1: rand: argument 1 is 1e+30; allowed are +-1e9"},
           {"}", "line 1: '}' without a block"},
           {"no_grad {\nx = 1", "line 2: a block has no '}'"},
           {"repeat 1000 {\n}", "line 1: expected 'repeat N {' with N from 1 to 100, or 'no_grad {'"},
           {"x = leaf([1])\nrepeat 100 {\nx = x * 1\nx = x * 1\nx = x * 1\n}",
            "line 5: the program has recorded 301 nodes; the page draws at most 300"},
           {"x = [1] + [1, 2, 3] * [1, 2]", "line 1: mul: shapes (3,) and (2,) do not broadcast"},
       })
    EXPECT_EQ(error_of(program).substr(0, error.size()), error) << program;
  EXPECT_NE(error_of("x = leaf([1])\nmul_(x, 2)").find("in-place writes are not recorded"),
            std::string::npos);
  EXPECT_NE(error_of("x = " + std::string(100000, '(')).find("nested too deeply"), std::string::npos);
}

TEST(WebLanguage, ExamplesBreakWhereTheySay) {
  const auto root = std::filesystem::path(vox::testing::data_dir).parent_path().parent_path();
  std::map<std::string, std::string> errors;
  for (const auto& entry : std::filesystem::directory_iterator(root / "web/examples")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const nlohmann::json result = result_of(text.str());
    EXPECT_FALSE(result["recording"]["events"].empty()) << entry.path();
    if (result["error"] != "") errors[entry.path().stem().string()] = result["error"];
  }
  EXPECT_EQ(errors.size(), 2u);
  EXPECT_NE(errors["05_written"].find("saved was written in place since"), std::string::npos);
  EXPECT_NE(errors["06_detached"].find("no backward() has reached it"), std::string::npos);
}

}  // namespace

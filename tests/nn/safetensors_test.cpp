#include <voxgrad/nn/safetensors.h>

#include "tests/support/test.h"

// Files that nn::load must refuse, each with its reason. tests/fuzz reads damaged files.

namespace vox {
namespace {

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes + rest;
}

/// A file of this header and `data` zero bytes.
std::string file(const std::string& header, size_t data = 0) {
  return with_length(header.size(), header + std::string(data, '\0'));
}

std::string refusal(const std::filesystem::path& path, const std::string& bytes) {
  return refusal_of_file<IoError>([](const auto& p) { nn::load(p); }, path, bytes);
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(SafetensorsTest, CorruptFilesAreRefusedWithAReason) {
  const std::string good = R"("a":)" + tensor(R"("F32")", "[2]", "[0,8]");
  const std::string good_b = R"("b":)" + tensor(R"("F32")", "[2]", "[8,16]");
  const std::string brackets(100000, '[');
  std::string braces;
  for (int i = 0; i < 100000; ++i) braces += R"({"a":)";
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return file(R"({"a":)" + tensor(dtype, shape, offsets) + "}", 8);
  };

  struct Case {
    std::string what, bytes, reason;
  };
  const std::vector<Case> cases = {
      // the length
      {"empty file", "", "at least 8 bytes"},
      {"seven bytes", "1234567", "at least 8 bytes"},
      {"header of length 0", with_length(0, ""), "starts with '{'"},
      {"header beyond the file", with_length(3, "{}"), "end within the file"},
      {"header above 100 MB", with_length(100'000'001, "{}"), "at most 100000000"},
      {"header of 2^64 - 1", with_length(UINT64_MAX, "{}"), "at most 100000000"},
      {"header of 2^63", with_length(uint64_t{1} << 63, "{}"), "at most 100000000"},
      {"a PyTorch zip file", "PK\x03\x04" + std::string(100, 'x'), "this is a file of torch.save"},
      // the text
      {"space first", file(" {}"), "starts with '{'"},
      {"byte order mark first", file("\xef\xbb\xbf{}"), "starts with '{'"},
      {"an array", file("[]"), "starts with '{'"},
      {"unclosed object", file("{"), "JSON"},
      {"text after the object", file("{} x"), "JSON"},
      {"two objects", file("{}{}"), "JSON"},
      {"zero byte and more after the object", file(std::string("{}\0{", 4)), "zero byte"},
      {"zero byte within", file(std::string("{\0}", 3)), "zero byte"},
      {"trailing comma", file("{" + good + ",}", 8), "JSON"},
      {"a comment", file("{/* */}"), "JSON"},
      {"not UTF-8", file("{\"\xff\":1}"), "JSON"},
      {"overlong UTF-8", file("{\"\xc0\xaf\":1}"), "JSON"},
      {"half a surrogate pair", file(R"({"\ud800":1})"), "JSON"},
      {"control character in a name", file("{\"a\nb\":1}"), "JSON"},
      {"NaN", file(R"({"a":NaN})"), "JSON"},
      // names
      {"duplicate tensor", file("{" + good + "," + good + "}", 8), "no name comes twice"},
      {"duplicate tensor, spelled by escape", file("{" + good + R"(,"\u0061":)" + "{}}", 8),
       "no name comes twice"},
      {"duplicate __metadata__", file(R"({"__metadata__":{},"__metadata__":{}})"), "no name comes twice"},
      {"duplicate metadata", file(R"({"__metadata__":{"k":"1","k":"1"}})"), "no name of __metadata__"},
      {"duplicate field", file(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
       "no field of a tensor comes twice"},
      {"unknown field", file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), "only"},
      {"missing shape", file(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8), "fields"},
      {"missing everything", file(R"({"a":{}})"), "fields"},
      // values of the wrong kind
      {"metadata is an array", file(R"({"__metadata__":[]})"), "__metadata__ is an object"},
      {"metadata is null", file(R"({"__metadata__":null})"), "__metadata__ is an object"},
      {"metadata value is a number", file(R"({"__metadata__":{"k":1}})"), "values of __metadata__"},
      {"metadata value is an object", file(R"({"__metadata__":{"k":{}}})"), "values of __metadata__"},
      {"tensor is a number", file(R"({"a":1})"), "a tensor is an object"},
      {"tensor is an array", file(R"({"a":[]})"), "a tensor is an object"},
      {"dtype is a number", one("32", "[2]", "[0,8]"), "dtype is a text"},
      {"dtype is unknown", one(R"("F31")", "[2]", "[0,8]"), "'F31'"},
      {"dtype is not ours", one(R"("F8_E4M3")", "[4]", "[0,8]"), "'F8_E4M3'"},
      {"dtype in lower case", one(R"("f32")", "[2]", "[0,8]"), "'f32'"},
      {"shape is a number", one(R"("F32")", "2", "[0,8]"), "shape is an array"},
      {"shape is nested", one(R"("F32")", "[[2]]", "[0,8]"), "shape is an array"},
      {"size is a float", one(R"("F32")", "[2.0]", "[0,8]"), "shape is an array of whole numbers"},
      {"size has an exponent", one(R"("F32")", "[2e0]", "[0,8]"), "shape is an array of whole numbers"},
      {"size is negative", one(R"("F32")", "[-2]", "[0,8]"), "shape is an array of whole numbers"},
      {"size is minus zero", one(R"("F32")", "[-0]", "[0,8]"), "shape is an array of whole numbers"},
      {"size is a text", one(R"("F32")", R"(["2"])", "[0,8]"), "shape is an array of whole numbers"},
      {"size is true", one(R"("F32")", "[true]", "[0,8]"), "shape is an array of whole numbers"},
      {"size has a leading zero", one(R"("F32")", "[02]", "[0,8]"), "JSON"},
      {"size is 2^63", one(R"("F32")", "[9223372036854775808]", "[0,8]"), "below 2^63"},
      {"size is 2^64", one(R"("F32")", "[18446744073709551616]", "[0,8]"), "whole numbers"},
      {"nine dimensions", one(R"("F32")", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "at most 8 dimensions"},
      {"offsets are an object", one(R"("F32")", "[2]", "{}"), "data_offsets is an array"},
      {"one offset", one(R"("F32")", "[2]", "[0]"), "two numbers"},
      {"three offsets", one(R"("F32")", "[2]", "[0,8,8]"), "two numbers"},
      {"offset is a float", one(R"("F32")", "[2]", "[0.0,8]"), "two whole numbers"},
      {"offset is negative", one(R"("F32")", "[2]", "[-8,0]"), "two whole numbers"},
      // sizes
      {"product of sizes overflows", one(R"("F32")", "[4294967296,4294967296]", "[0,0]"), "span"},
      {"overflow to the right bytes", one(R"("U8")", "[4294967297,4294967296,4294967296,8]", "[0,8]"),
       "span"},
      {"overflow hidden by 0", one(R"("F32")", "[0,4294967296,4294967296]", "[0,0]"), "span"},
      {"bytes overflow", one(R"("F64")", "[2305843009213693952]", "[0,0]"), "span"},
      {"too few bytes for the shape", one(R"("F32")", "[3]", "[0,8]"), "span"},
      {"too many bytes for the shape", one(R"("F32")", "[1]", "[0,8]"), "span"},
      {"scalar without bytes", one(R"("F32")", "[]", "[0,0]"), "span"},
      // offsets
      {"end before begin", one(R"("F32")", "[2]", "[8,0]"), "ascending order"},
      {"data cut", file("{" + good + "}", 7), "within the data"},
      {"end beyond the file", one(R"("F32")", "[4]", "[0,16]"), "within the data"},
      {"end of 2^63 - 1", one(R"("F32")", "[2]", "[0,9223372036854775807]"), "within the data"},
      {"data after the last tensor", file("{" + good + "}", 9), "end of the file"},
      {"data without a tensor", file("{}", 1), "end of the file"},
      {"hole at the start", file("{" + good_b + "}", 16), "holes"},
      {"hole between", file("{" + good + R"(,"b":)" + tensor(R"("F32")", "[1]", "[12,16]") + "}", 16),
       "holes"},
      {"overlap", file("{" + good + R"(,"b":)" + tensor(R"("F32")", "[3]", "[4,16]") + "}", 16), "overlaps"},
      {"two tensors on the same bytes",
       file("{" + good + R"(,"b":)" + tensor(R"("F32")", "[2]", "[0,8]") + "}", 8), "overlaps"},
      {"empty tensor within another",
       file("{" + good + R"(,"b":)" + tensor(R"("F32")", "[0]", "[4,4]") + "}", 8), "overlaps"},
      // bombs
      {"100,000 arrays", file(R"({"a":)" + brackets), "a tensor is an object"},
      {"100,000 objects", file(braces), "only"},
      {"arrays in a shape", file(R"({"a":{"shape":)" + brackets), "shape is an array"},
      // elements
      {"BOOL of 2",
       with_length(55, R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})"
                       "\x01\x02"),
       "elements of BOOL are 0 or 1, got 2"},
  };

  const TemporaryFolder folder;
  for (const Case& c : cases) {
    const std::string message = refusal(folder / "x", c.bytes);
    EXPECT_TRUE(has_parts(message, {"nn::load: " + (folder / "x").string() + ": "}))
        << c.what << ": " << message;
    EXPECT_TRUE(has_parts(message, {c.reason})) << c.what << ": " << message;
    EXPECT_LT(message.size(), 1000u) << c.what;
  }
}

/// A file with every dtype, metadata and an empty tensor.
std::string sound_file(const std::filesystem::path& path) {
  nn::save(path,
           {{"weight", ones({2, 2})},
            {"step", zeros({}, {.dtype = i64})},
            {"mean", zeros({1}, {.dtype = f64})},
            {"mask", ones({3}, {.dtype = boolean})},
            {"bytes", zeros({0, 5}, {.dtype = u8})}},
           {{"format", "pt"}});
  return read_bytes(path);
}

TEST(SafetensorsTest, TruncationAtEveryByteIsRefused) {
  const TemporaryFolder folder;
  const std::string sound = sound_file(folder / "sound");
  ASSERT_EQ(refusal(folder / "x", sound), "(it was loaded)");
  for (size_t length = 0; length < sound.size(); ++length) {
    const std::string message = refusal(folder / "x", sound.substr(0, length));
    EXPECT_EQ(message.find("nn::load: "), 0u) << length << " bytes: " << message;
  }
}

}  // namespace
}  // namespace vox

#include <sys/stat.h>

#include <voxgrad/nn/safetensors.h>

#include "tests/support/test.h"

namespace vox {
namespace {

using nn::StateDict;

class SerializeTest : public DeviceTest {
 protected:
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, SerializeTest, devices(), device_name);

/// A file, and what it holds.
struct Golden {
  const char* file;
  StateDict tensors;
  nn::Metadata metadata = {};
};

// Written by the format's reference implementation (Python package safetensors 0.8.0) from these tensors.
// (The fuzzer starts from them too.)
const auto of_reference = std::filesystem::path(testing::data_dir).parent_path() / "fuzz/corpus/safetensors";

std::vector<Golden> goldens(Device device) {
  return {{"reference",
           {{"weight", from_vector<float>({1.5f, -2.f, 0.25f, 3e8f}, {2, 2}, device)},
            {"a.bias", from_vector<uint8_t>({1, 2, 3}, {3}, device)},
            {"mask", from_vector<bool>({true, false}, {2}, device)},
            {"step", full({}, 7, {.dtype = i64, .device = device})},
            {"z", zeros({0, 3}, {.dtype = f64, .device = device})},
            {"q\"\n\xc3\xa9", from_vector<double>({0.1}, {1}, device)}},
           {{"format", "pt"}}},
          {"reference_16_bits",  // in the order F32, BF16, F16, U8
           {{"h", from_vector<float16>({1, -2}, {2}, device)},
            {"b", from_vector<bfloat16>({1, 0.5}, {2, 1}, device)},
            {"f", from_vector<float>({1}, {1}, device)},
            {"u", from_vector<uint8_t>({7}, {1}, device)}}}};
}

TEST_P(SerializeTest, FilesAreThoseOfTheReferenceImplementation) {
  for (const auto& [name_of_file, tensors, metadata] : goldens(device())) {
    nn::save(folder_ / "written", tensors, metadata);
    EXPECT_EQ(read_bytes(folder_ / "written"), read_bytes(of_reference / name_of_file));
    const nn::LoadedFile file = nn::load(of_reference / name_of_file, device());
    EXPECT_EQ(file.metadata, metadata);
    EXPECT_EQ(file.tensors.size(), tensors.size());
    for (const auto& [name, t] : tensors) {
      EXPECT_EQ(file.tensors.at(name).device(), device()) << name;
      EXPECT_TRUE(same_bits(file.tensors.at(name), t)) << name;
    }
  }
}

TEST_P(SerializeTest, RoundTripKeepsBitsOfStridedTensorsParametersAndMetadata) {
  const Tensor base = from_vector<float>({0, 1, 2, 3, 4, 5}, {2, 3}, device());
  const Tensor odd = make({-0.0, NAN, INFINITY, 5e-324}, {4}).set_requires_grad();
  const nn::Metadata metadata = {{"", "empty name"}, {"text", "\t\"\\ \xe2\x82\xac"}};
  nn::save(folder_ / "x", {{"t", base.transpose(0, 1)}, {"odd", odd}, {"", base.select(0, 1)}}, metadata);
  const nn::LoadedFile file = nn::load(folder_ / "x", device());
  EXPECT_EQ(file.metadata, metadata);
  EXPECT_EQ(file.tensors.at("t").shape(), Shape({3, 2}));
  EXPECT_EQ(file.tensors.at("t").to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(file.tensors.at("").to_vector<float>(), (Floats{3, 4, 5}));
  EXPECT_FALSE(file.tensors.at("odd").requires_grad());
  const Doubles got = file.tensors.at("odd").to_vector<double>();
  EXPECT_TRUE(std::signbit(got[0]) && got[0] == 0);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], INFINITY);
  EXPECT_EQ(got[3], 5e-324);
}

class SerializeFileTest : public ::testing::Test {
 protected:
  const TemporaryFolder folder;
};

TEST_F(SerializeFileTest, NothingIsAFileToo) {
  nn::save(folder / "x", {});
  EXPECT_EQ(read_bytes(folder / "x"), std::string("\x08\0\0\0\0\0\0\0", 8) + "{}      ");
  EXPECT_TRUE(nn::load(folder / "x").tensors.empty());
}

TEST_F(SerializeFileTest, DataStartsAtAMultipleOf8) {
  std::string name;
  for (int i = 0; i < 9; ++i, name += 'n') {
    nn::save(folder / "x", {{name, ones({1})}});
    EXPECT_EQ(read_bytes(folder / "x").size() % 8, 4u) << "the data of one f32 after the header";
    EXPECT_EQ(nn::load(folder / "x").tensors.count(name), 1u);
  }
}

TEST_F(SerializeFileTest, ReplacesAFileAndLeavesNothingBeside) {
  for (const float value : {1.f, 2.f}) {
    nn::save(folder / "x", {{"t", full({2}, value)}});
    EXPECT_EQ(nn::load(folder / "x").tensors.at("t").to_vector<float>(), (Floats{value, value}));
  }
  EXPECT_EQ(folder.entries(), 1);
  const mode_t hidden = umask(022);
  nn::save(folder / "of_default_mode", {});
  umask(hidden);
  EXPECT_EQ(std::filesystem::status(folder / "of_default_mode").permissions(), std::filesystem::perms(0644));
}

TEST_F(SerializeFileTest, AFailedSaveKeepsTheOldFileAndLeavesNothingBeside) {
  nn::save(folder / "x", {{"t", ones({2})}});
  const std::string before = read_bytes(folder / "x");
  EXPECT_ERRORS(ValueError, nn::save(folder / "x", {{"t", Tensor()}}),
                nn::save(folder / "x", {{"__metadata__", ones({2})}}),
                nn::save(folder / "x", {{"\xff", ones({2})}}), nn::save(folder / "x", {}, {{"a", "\xc3"}}));
  EXPECT_EQ(read_bytes(folder / "x"), before);

  std::filesystem::create_directory(folder / "folder");
  write_bytes(folder.path() / "folder" / "inside", "kept");
  EXPECT_ERRORS(IoError, nn::save(folder / "folder", {{"t", ones({2})}}),
                nn::save(folder.path() / "absent" / "x", {}));
  EXPECT_EQ(folder.entries(), 3);
}

TEST_F(SerializeFileTest, RefusesToReplaceWhatIsNotARegularFile) {
  const std::filesystem::path fifo = folder / "fifo", link = folder / "link", loop = folder / "loop";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_symlink("fifo", link);
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink("loop", loop);
  for (const auto& path : {fifo, link, folder / "folder"})
    EXPECT_MESSAGE(IoError, nn::save(path, {{"t", ones({2})}}),
                   str("nn::save: ", path.string(), ": must be a regular file or not exist"));
  EXPECT_THROW(nn::save(loop, {{"t", ones({2})}}), IoError);
  EXPECT_MESSAGE(IoError, nn::save("", {}), "nn::save: needs the name of a file, got an empty path");
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_symlink(loop));
  EXPECT_EQ(folder.entries(), 4);
}

TEST_F(SerializeFileTest, ALinkStaysAndItsTargetIsReplaced) {
  const std::filesystem::path there = folder / "there", relative = folder / "relative";
  std::filesystem::create_directory(there);
  write_bytes(there / "x", "before");
  std::filesystem::create_symlink("there/x", relative);
  std::filesystem::create_symlink(relative, folder / "absolute");     // to a link
  std::filesystem::create_symlink("there/new", folder / "dangling");  // its target may come to be
  for (const auto& [name, target] : {std::pair{"relative", "x"}, {"absolute", "x"}, {"dangling", "new"}}) {
    nn::save(folder / name, {{name, ones({2})}});
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name)) << name;
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(there / target))) << name;
    EXPECT_EQ(nn::load(there / target).tensors.count(name), 1u);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(relative));
  EXPECT_EQ(folder.entries(), 6) << "a folder, three links and two files";
}

TEST_F(SerializeFileTest, AHeaderAbove100MBIsRefusedBeforeAnythingIsWritten) {
  EXPECT_THROW(nn::save(folder / "x", {}, {{"k", std::string(100'000'000, 'x')}}), ValueError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(SerializeFileTest, WritersOfOneNameDoNotMix) {
  std::vector<std::thread> writers;
  for (int64_t k = 0; k < 4; ++k) {
    writers.emplace_back([this, k] {
      for (int i = 0; i < 5; ++i) nn::save(folder / "x", {{"t", full({1000 * (k + 1)}, k)}});
    });
  }
  for (std::thread& writer : writers) writer.join();
  const Tensor t = nn::load(folder / "x").tensors.at("t");
  const float k = t.to_vector<float>()[0];
  EXPECT_EQ(t.to_vector<float>(), Floats(1000 * (static_cast<size_t>(k) + 1), k));
  EXPECT_EQ(folder.entries(), 1);
}

TEST_F(SerializeFileTest, RefusesWhatIsNotAReadableFile) {
  EXPECT_ERRORS(IoError, nn::load(folder / "absent"), nn::load(folder.path()), nn::load("/dev/null"));
  nn::save(folder / "x", {});
  const std::string cut = (folder / "x").string() + std::string("\0y", 2);
  EXPECT_REFUSED(IoError, nn::load(cut), "must have no zero byte");
  EXPECT_REFUSED(IoError, nn::save(cut, {}), "must have no zero byte");
  for (const auto& [first, name] :
       {std::pair("PK\3\4....", "torch.save"), {"\x80\2.......", "before PyTorch 1.6"}}) {
    std::ofstream(folder / "weights.pt") << first << std::string(99, 'x');
    EXPECT_REFUSED(IoError, nn::load(folder / "weights.pt"), name);
    EXPECT_REFUSED(IoError, nn::load(folder / "weights.pt"), "safetensors.torch.save_file");
  }
}

// Files that nn::load must refuse, each with its reason. tests/fuzz reads damaged files.

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

TEST(SafetensorsTest, TruncationAtEveryByteIsRefused) {
  const TemporaryFolder folder;
  const std::string sound = read_bytes(of_reference / "reference");
  ASSERT_EQ(refusal(folder / "x", sound), "(it was loaded)");
  for (size_t length = 0; length < sound.size(); ++length) {
    const std::string message = refusal(folder / "x", sound.substr(0, length));
    EXPECT_EQ(message.find("nn::load: "), 0u) << length << " bytes: " << message;
  }
}

}  // namespace
}  // namespace vox

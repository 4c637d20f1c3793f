#include <sys/stat.h>

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
  std::string bytes;
  StateDict tensors;
  nn::Metadata metadata = {};
};

std::vector<Golden> goldens(Device device) {
  return {// Written by the format's reference implementation (Python package safetensors 0.8.0) from these
          // tensors.
          {std::string("\x80\x01\0\0\0\0\0\0", 8) +
               "{\"__metadata__\":{\"format\":\"pt\"},"
               "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
               "\"q\\\"\\n\xc3\xa9\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]},"
               "\"z\":{\"dtype\":\"F64\",\"shape\":[0,3],\"data_offsets\":[16,16]},"
               "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
               "\"a.bias\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[32,35]},"
               "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[35,37]}}" +
               std::string("\x07\0\0\0\0\0\0\0\x9a\x99\x99\x99\x99\x99\xb9?\0\0\xc0?\0\0\0\xc0\0\0\x80>"
                           "\x18\r\x8fM\x01\x02\x03\x01\0",
                           37),
           {{"weight", from_vector<float>({1.5f, -2.f, 0.25f, 3e8f}, {2, 2}, device)},
            {"a.bias", from_vector<uint8_t>({1, 2, 3}, {3}, device)},
            {"mask", from_vector<bool>({true, false}, {2}, device)},
            {"step", full({}, 7, {.dtype = i64, .device = device})},
            {"z", zeros({0, 3}, {.dtype = f64, .device = device})},
            {"q\"\n\xc3\xa9", from_vector<double>({0.1}, {1}, device)}},
           {{"format", "pt"}}},
          // In the order of the reference implementation: F32, BF16, F16, U8.
          {std::string("\xe0\0\0\0\0\0\0\0", 8) +
               "{\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
               "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[4,8]},"
               "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},"
               "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[12,13]}}      " +
               std::string("\0\0\x80\x3f\x80\x3f\0\x3f\0\x3c\0\xc0\x07", 13),
           {{"h", from_vector<float16>({1, -2}, {2}, device)},
            {"b", from_vector<bfloat16>({1, 0.5}, {2, 1}, device)},
            {"f", from_vector<float>({1}, {1}, device)},
            {"u", from_vector<uint8_t>({7}, {1}, device)}}}};
}

TEST_P(SerializeTest, FilesAreThoseOfTheReferenceImplementation) {
  for (const auto& [bytes, tensors, metadata] : goldens(device())) {
    nn::save(folder_ / "written", tensors, metadata);
    EXPECT_EQ(read_bytes(folder_ / "written"), bytes);
    write_bytes(folder_ / "x", bytes);
    const nn::LoadedFile file = nn::load(folder_ / "x", device());
    EXPECT_EQ(file.metadata, metadata);
    EXPECT_EQ(file.tensors.size(), tensors.size());
    for (const auto& [name, t] : tensors) {
      EXPECT_EQ(file.tensors.at(name).device(), device()) << name;
      EXPECT_TRUE(same_bits(file.tensors.at(name), t)) << name;
    }
  }
}

TEST_P(SerializeTest, RoundTripKeepsBitsOfStridedTensorsAndMetadata) {
  const Tensor base = from_vector<float>({0, 1, 2, 3, 4, 5}, {2, 3}, device());
  const Tensor odd = from_vector<double>({-0.0, NAN, INFINITY, 5e-324}, {4}, device());
  const nn::Metadata metadata = {{"", "empty name"}, {"text", "\t\"\\ \xe2\x82\xac"}};
  nn::save(folder_ / "x", {{"t", base.transpose(0, 1)}, {"odd", odd}, {"", base.select(0, 1)}}, metadata);
  const nn::LoadedFile file = nn::load(folder_ / "x", device());
  EXPECT_EQ(file.metadata, metadata);
  EXPECT_EQ(file.tensors.at("t").shape(), Shape({3, 2}));
  EXPECT_EQ(file.tensors.at("t").to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(file.tensors.at("").to_vector<float>(), (Floats{3, 4, 5}));
  const std::vector<double> got = file.tensors.at("odd").to_vector<double>();
  EXPECT_TRUE(std::signbit(got[0]) && got[0] == 0);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], INFINITY);
  EXPECT_EQ(got[3], 5e-324);
}

TEST_P(SerializeTest, SavesParametersThatRequireGradAndLoadsPlainTensors) {
  Tensor p = ones({3}, {.device = device()});
  p.set_requires_grad(true);
  nn::save(folder_ / "x", {{"p", p}});
  const Tensor q = nn::load(folder_ / "x", device()).tensors.at("p");
  EXPECT_FALSE(q.requires_grad());
  EXPECT_EQ(q.to_vector<float>(), (Floats{1, 1, 1}));
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
  for (const auto& [first, name] :
       {std::pair("PK\3\4....", "torch.save"), {"\x80\2.......", "before PyTorch 1.6"}}) {
    std::ofstream(folder / "weights.pt") << first << std::string(99, 'x');
    EXPECT_REFUSED(IoError, nn::load(folder / "weights.pt"), name);
    EXPECT_REFUSED(IoError, nn::load(folder / "weights.pt"), "safetensors.torch.save_file");
  }
}

}  // namespace
}  // namespace vox

#include <voxgrad/core/factories.h>
#include <voxgrad/nn/serialize.h>

#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_folder.h"

#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <thread>

namespace vox {
namespace {

using nn::StateDict;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

class SerializeTest : public testing::DeviceTest {
 protected:
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, SerializeTest, testing::devices(), testing::device_name);

// Written by the format's reference implementation (Python package safetensors 0.8.0) from the same tensors.
const std::string golden =
    std::string("\x80\x01\0\0\0\0\0\0", 8) +
    "{\"__metadata__\":{\"format\":\"pt\"},\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
    "\"q\\\"\\n\xc3\xa9\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]},"
    "\"z\":{\"dtype\":\"F64\",\"shape\":[0,3],\"data_offsets\":[16,16]},"
    "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
    "\"a.bias\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[32,35]},"
    "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[35,37]}}" +
    std::string(
        "\x07\0\0\0\0\0\0\0\x9a\x99\x99\x99\x99\x99\xb9?\0\0\xc0?\0\0\0\xc0\0\0\x80>\x18\r\x8fM"
        "\x01\x02\x03\x01\0",
        37);

StateDict golden_tensors(Device device) {
  return {{"weight", from_vector<float>({1.5f, -2.f, 0.25f, 3e8f}, {2, 2}, device)},
          {"a.bias", from_vector<uint8_t>({1, 2, 3}, {3}, device)},
          {"mask", from_vector<bool>({true, false}, {2}, device)},
          {"step", full({}, 7, {.dtype = i64, .device = device})},
          {"z", zeros({0, 3}, {.dtype = f64, .device = device})},
          {"q\"\n\xc3\xa9", from_vector<double>({0.1}, {1}, device)}};
}

TEST_P(SerializeTest, WritesTheBytesOfTheReferenceImplementation) {
  nn::save(folder_ / "x", golden_tensors(device()), {{"format", "pt"}});
  EXPECT_EQ(read_bytes(folder_ / "x"), golden);
}

TEST_P(SerializeTest, ReadsTheBytesOfTheReferenceImplementation) {
  write_bytes(folder_ / "x", golden);
  const nn::LoadedFile file = nn::load(folder_ / "x", device());
  EXPECT_EQ(file.metadata, (nn::Metadata{{"format", "pt"}}));
  const StateDict& t = file.tensors;
  ASSERT_EQ(t.size(), 6u);
  for (const auto& [name, tensor] : t) EXPECT_EQ(tensor.device(), device()) << name;
  EXPECT_EQ(t.at("weight").shape(), Shape({2, 2}));
  EXPECT_EQ(t.at("weight").to_vector<float>(), (std::vector<float>{1.5f, -2.f, 0.25f, 3e8f}));
  EXPECT_EQ(t.at("a.bias").to_vector<uint8_t>(), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(t.at("mask").to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(t.at("step").shape(), Shape());
  EXPECT_EQ(t.at("step").item<int64_t>(), 7);
  EXPECT_EQ(t.at("z").shape(), Shape({0, 3}));
  EXPECT_EQ(t.at("z").dtype(), f64);
  EXPECT_EQ(t.at("q\"\n\xc3\xa9").item<double>(), 0.1);
}

TEST_P(SerializeTest, RoundTripKeepsBitsOfStridedTensorsAndMetadata) {
  const Tensor base = from_vector<float>({0, 1, 2, 3, 4, 5}, {2, 3}, device());
  const Tensor odd = from_vector<double>({-0.0, NAN, INFINITY, 5e-324}, {4}, device());
  const nn::Metadata metadata = {{"", "empty name"}, {"text", "\t\"\\ \xe2\x82\xac"}};
  nn::save(folder_ / "x", {{"t", base.transpose(0, 1)}, {"odd", odd}, {"", base.select(0, 1)}}, metadata);
  const nn::LoadedFile file = nn::load(folder_ / "x", device());
  EXPECT_EQ(file.metadata, metadata);
  EXPECT_EQ(file.tensors.at("t").shape(), Shape({3, 2}));
  EXPECT_EQ(file.tensors.at("t").to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(file.tensors.at("").to_vector<float>(), (std::vector<float>{3, 4, 5}));
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
  EXPECT_EQ(q.to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

TEST(SerializeFileTest, NothingIsAFileToo) {
  const TemporaryFolder folder;
  nn::save(folder / "x", {});
  EXPECT_EQ(read_bytes(folder / "x"), std::string("\x08\0\0\0\0\0\0\0", 8) + "{}      ");
  EXPECT_TRUE(nn::load(folder / "x").tensors.empty());
}

TEST(SerializeFileTest, DataStartsAtAMultipleOf8) {
  const TemporaryFolder folder;
  std::string name;
  for (int i = 0; i < 9; ++i, name += 'n') {
    nn::save(folder / "x", {{name, ones({1})}});
    EXPECT_EQ(read_bytes(folder / "x").size() % 8, 4u) << "the data of one f32 after the header";
    EXPECT_EQ(nn::load(folder / "x").tensors.count(name), 1u);
  }
}

TEST(SerializeFileTest, ReplacesAFileAndLeavesNothingBeside) {
  const TemporaryFolder folder;
  for (const float value : {1.f, 2.f}) {
    nn::save(folder / "x", {{"t", full({2}, value)}});
    EXPECT_EQ(nn::load(folder / "x").tensors.at("t").to_vector<float>(), (std::vector<float>{value, value}));
  }
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 1);
}

TEST(SerializeFileTest, AFailedSaveKeepsTheOldFileAndLeavesNothingBeside) {
  const TemporaryFolder folder;
  nn::save(folder / "x", {{"t", ones({2})}});
  const std::string before = read_bytes(folder / "x");
  EXPECT_THROW(nn::save(folder / "x", {{"t", Tensor()}}), ValueError);
  EXPECT_THROW(nn::save(folder / "x", {{"__metadata__", ones({2})}}), ValueError);
  EXPECT_THROW(nn::save(folder / "x", {{"\xff", ones({2})}}), ValueError);
  EXPECT_THROW(nn::save(folder / "x", {}, {{"a", "\xc3"}}), ValueError);
  EXPECT_EQ(read_bytes(folder / "x"), before);

  std::filesystem::create_directory(folder / "folder");
  write_bytes(folder.path() / "folder" / "inside", "kept");
  EXPECT_THROW(nn::save(folder / "folder", {{"t", ones({2})}}), IoError);
  EXPECT_THROW(nn::save(folder.path() / "absent" / "x", {}), IoError);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 2);
}

TEST(SerializeFileTest, RefusesToReplaceWhatIsNotARegularFile) {
  const TemporaryFolder folder;
  const std::filesystem::path fifo = folder / "fifo", link = folder / "link", loop = folder / "loop";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_symlink("fifo", link);
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink("loop", loop);
  for (const auto& path : {fifo, link, folder / "folder"})
    EXPECT_EQ(testing::message_of<IoError>([&] {
                nn::save(path, {{"t", ones({2})}});
              }),
              str("nn::save: ", path.string(), ": must be a regular file or not exist"));
  EXPECT_THROW(nn::save(loop, {{"t", ones({2})}}), IoError);
  EXPECT_EQ(testing::message_of<IoError>([] { nn::save("", {}); }),
            "nn::save: needs the name of a file, got an empty path");
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_symlink(loop));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 4);
}

TEST(SerializeFileTest, ALinkStaysAndItsTargetIsReplaced) {
  const TemporaryFolder folder;
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
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 6) << "a folder, three links and two files";
}

TEST(SerializeFileTest, AHeaderAbove100MBIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  EXPECT_THROW(nn::save(folder / "x", {}, {{"k", std::string(100'000'000, 'x')}}), ValueError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SerializeFileTest, WritersOfOneNameDoNotMix) {
  const TemporaryFolder folder;
  std::vector<std::thread> writers;
  for (int64_t k = 0; k < 4; ++k) {
    writers.emplace_back([&folder, k] {
      for (int i = 0; i < 5; ++i) nn::save(folder / "x", {{"t", full({1000 * (k + 1)}, k)}});
    });
  }
  for (std::thread& writer : writers) writer.join();
  const Tensor t = nn::load(folder / "x").tensors.at("t");
  const float k = t.to_vector<float>()[0];
  EXPECT_EQ(t.to_vector<float>(), std::vector<float>(1000 * (static_cast<size_t>(k) + 1), k));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 1);
}

TEST(SerializeFileTest, RefusesWhatIsNotAReadableFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(nn::load(folder / "absent"), IoError);
  EXPECT_THROW(nn::load(folder.path()), IoError);
  EXPECT_THROW(nn::load("/dev/null"), IoError);
  for (const auto& [first, name] :
       {std::pair("PK\3\4....", "torch.save"), {"\x80\2.......", "before PyTorch 1.6"}}) {
    std::ofstream(folder / "weights.pt") << first << std::string(99, 'x');
    EXPECT_REFUSED(IoError, nn::load(folder / "weights.pt"), name);
    EXPECT_REFUSED(IoError, nn::load(folder / "weights.pt"), "safetensors.torch.save_file");
  }
}

}  // namespace
}  // namespace vox

// The progress line, and the files of curves.
#include "tests/support/test.h"

namespace vox::nn {
namespace {

/// What Progress prints for one step of many, made 20 ms after it began.
std::string progress_line(int64_t steps, double seconds) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(steps, {.seconds = seconds, .out = file});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    progress.update(1, "loss 0.5");
  }
  std::rewind(file);
  char text[300] = "";
  EXPECT_NE(std::fgets(text, sizeof text, file), nullptr);
  std::fclose(file);
  return text;
}

constexpr double forever = inf;

TEST(Progress, TimeLeftIsThatOfTheStepsOrOfTheClock) {
  // A million steps of 20 ms and more take hours; just below 90 s the display is 1:30.
  EXPECT_EQ(progress_line(1'000'000, forever).find("  1:30 left"), std::string::npos);
  EXPECT_NE(progress_line(1'000'000, 90.0).find("  1:30 left"), std::string::npos);
  EXPECT_NE(progress_line(1'000'000, 0.001).find("  0:00 left"), std::string::npos);
  EXPECT_NE(progress_line(2, 90.0).find("  0:01 left"), std::string::npos);
}

TEST(Progress, BarIsThatOfTheStepsOrOfTheClock) {
  const std::string full(24, '#'), empty(24, '.');
  EXPECT_TRUE(progress_line(1'000'000, forever).starts_with('[' + empty + "] 1/1000000  loss 0.5  "));
  EXPECT_TRUE(progress_line(1'000'000, 1e5).starts_with('[' + empty + ']'));
  EXPECT_TRUE(progress_line(1'000'000, 0.001).starts_with('[' + full + ']'));
  EXPECT_TRUE(progress_line(1, 1e5).starts_with('[' + full + ']'));
  EXPECT_THROW(Progress(1, {.done = 2}), ValueError);
}

TEST(CsvLog, KeepsTheRowsThatAResumedRunDoesNotRepeat) {
  const TemporaryFolder folder;
  const auto path = folder / "run.csv";
  {
    CsvLog log(path, {"step", "loss", "dice"});
    log.row({1, 0.1, NAN});
    log.row({2, 1e-20, 0.5});
    log.row({3, INFINITY, 1});
    EXPECT_EQ(read_bytes(path), "step,loss,dice\n1,0.1,\n2,1e-20,0.5\n3,inf,1\n");
    EXPECT_THROW(log.row({1}), ValueError);
  }
  write_bytes(path, read_bytes(path) + "1,cut");
  CsvLog(path, {"step", "loss", "dice"}, 2).row({3, 7, 8});
  EXPECT_EQ(read_bytes(path), "step,loss,dice\n1,0.1,\n2,1e-20,0.5\n3,7,8\n");
  EXPECT_REFUSED(IoError, CsvLog(path, {"step", "loss"}, 2), "the columns must be step,loss, got step,loss,");
  CsvLog(path, {"step", "loss"});
  EXPECT_EQ(read_bytes(path), "step,loss\n");
  EXPECT_ERRORS(ValueError, CsvLog(path, {}), CsvLog(path, {"a,b"}));
  EXPECT_THROW(CsvLog(folder / "no/such.csv", {"a"}), IoError);
}

TEST(TensorBoardLog, WritesRecordsOfEvents) {
  EXPECT_EQ(detail::crc32c("123456789"), 0xE3069283);  // the check value of CRC-32C
  const TemporaryFolder folder;
  TensorBoardLog log(folder / "runs"), other(folder / "runs");
  log.scalar("loss", 300, 1.5);
  EXPECT_EQ(folder.entries(), 3);  // the folder and two files
  std::string bytes;
  for (const auto& file : std::filesystem::directory_iterator(folder / "runs"))
    bytes = std::max(bytes, read_bytes(file), [](auto& a, auto& b) { return a.size() < b.size(); });
  std::vector<std::string> events;  // without their times
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, &bytes[at], 8);
    ASSERT_LE(at + length + 16, bytes.size());
    events.push_back(bytes.substr(at + 12 + 9, length - 9));
    const auto crc = [&](size_t first, size_t count) {
      uint32_t stored = 0;
      std::memcpy(&stored, &bytes[first + count], 4);
      const uint32_t rotated = stored - 0xA282EAD8;
      EXPECT_EQ(rotated >> 17 | rotated << 15, detail::crc32c(bytes.substr(first, count)));
    };
    crc(at, 8), crc(at + 12, length);
    at += length + 16;
  }
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0],
            "\x1a\x0d"
            "brain.Event:2");
  // Step 300 as a varint; the summary, its value, the tag, and 1.5 as a float.
  EXPECT_EQ(events[1], std::string("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\xc0\x3f", 18));
}

}  // namespace
}  // namespace vox::nn

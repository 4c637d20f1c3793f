#include <voxgrad/core/check.h>
#include <voxgrad/nn/atomic_file.h>
#include <voxgrad/nn/event_log.h>

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <system_error>

namespace vox::nn {

namespace detail {

GrowingFile::GrowingFile(const char* function, const std::filesystem::path& path)
    : function_(function), path_(path.string()), file_(std::fopen(path.c_str(), "ab")) {
  check<IoError>(file_ != nullptr, function, ": cannot open ", path_, ": ",
                 std::generic_category().message(errno));
}

void GrowingFile::write(const std::string& bytes) {
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size();
  check<IoError>(written && std::fflush(file_.get()) == 0, function_, ": cannot write ", path_, ": ",
                 std::generic_category().message(errno));
}

uint32_t crc32c(const std::string& bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

}  // namespace detail

// ---- Comma-separated values ----------------------------------------------------------------------------

namespace {

/// The lines of the file that stay: those whose first number is at most `last`.
std::string rows_up_to(double last, const std::filesystem::path& path, const std::string& header) {
  std::error_code error;
  const std::string text = std::filesystem::exists(path, error) ? detail::read_whole("CsvLog", path) : "";
  std::string rows, found;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {  // not a line that was cut
    const std::string line = text.substr(begin, end - begin);
    if (begin == 0)
      found = line;
    else if (std::strtod(line.c_str(), nullptr) <= last)
      rows += line + '\n';
  }
  check<IoError>(found == header || rows.empty(), "CsvLog: ", path.string(), ": the columns must be ", header,
                 ", got ", found);
  return rows;
}

}  // namespace

CsvLog::CsvLog(const std::filesystem::path& path, const std::vector<std::string>& columns, Real last)
    : columns_(columns.size()) {
  std::string header;
  for (const std::string& name : columns) {
    check<ValueError>(name.find_first_of(",\"\r\n") == std::string::npos,
                      "CsvLog: names of columns have no comma, quote or line break, got '", name, "'");
    header += (header.empty() ? "" : ",") + name;
  }
  check<ValueError>(!columns.empty(), "CsvLog: needs a column");
  const std::string kept = header + '\n' + rows_up_to(last, path, header);
  detail::AtomicFile file("CsvLog", path);
  file.write(kept.data(), kept.size());
  file.commit();
  file_ = std::make_unique<detail::GrowingFile>("CsvLog", path);
}

void CsvLog::row(const std::vector<double>& numbers) {
  check<ValueError>(numbers.size() == columns_, "CsvLog::row: needs ", columns_, " numbers, got ",
                    numbers.size());
  std::string line;
  for (const double& number : numbers) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, number).ptr;  // the shortest exact text
    if (&number != &numbers.front()) line += ',';
    if (!std::isnan(number)) line.append(text, end);
  }
  file_->write(line + '\n');
}

// ---- TensorBoard ---------------------------------------------------------------------------------------
//
// A file is a sequence of records: length (u64), its masked CRC, an Event in protobuf's encoding, its masked
// CRC. Fields used: Event {1: wall_time (double), 2: step (int64), 3: file_version (string), 5: summary};
// Summary {1: Value}; Value {1: tag (string), 2: simple_value (float)}.

namespace {

template <class T>
std::string bytes_of(T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  return {bytes.begin(), bytes.end()};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

/// Fields of wire type 0 (varint), 1 (8 bytes), 2 (length and bytes) and 5 (4 bytes).
std::string key(int number, int wire_type) { return varint(static_cast<uint64_t>(number * 8 + wire_type)); }
std::string nested(int number, const std::string& bytes) {
  return key(number, 2) + varint(bytes.size()) + bytes;
}

std::string masked_crc(const std::string& bytes) {
  return bytes_of(std::rotr(detail::crc32c(bytes), 15) + 0xA282EAD8);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TensorBoardLog::TensorBoardLog(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check<IoError>(!error, "TensorBoardLog: cannot make ", folder.string(), ": ", error.message());
  std::filesystem::path path;
  const auto second = static_cast<int64_t>(seconds_now());
  for (int number = 0; path.empty() || std::filesystem::exists(path); ++number)
    path = folder / str("events.out.tfevents.", second, ".voxgrad.", getpid(), '.', number);
  file_ = std::make_unique<detail::GrowingFile>("TensorBoardLog", path);
  event(nested(3, "brain.Event:2"));
}

void TensorBoardLog::scalar(const std::string& tag, Int step, Real value) {
  const std::string point = nested(1, tag) + key(2, 5) + bytes_of(static_cast<float>(value));
  event(key(2, 0) + varint(static_cast<uint64_t>(int64_t{step})) + nested(5, nested(1, point)));
}

void TensorBoardLog::event(const std::string& fields) {
  const std::string data = key(1, 1) + bytes_of(seconds_now()) + fields;
  const std::string length = bytes_of(uint64_t{data.size()});
  file_->write(length + masked_crc(length) + data + masked_crc(data));
}

}  // namespace vox::nn

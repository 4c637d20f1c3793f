#include <voxgrad/core/check.h>
#include <voxgrad/nn/atomic_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace vox::nn::detail {

namespace {

/// The path as text. The system would take a name only up to its first zero byte.
std::string checked_name(const char* function, const std::filesystem::path& path) {
  const std::string given = path.string();
  check<IoError>(!given.empty(), function, ": needs the name of a file, got an empty path");
  check<IoError>(given.find('\0') == given.npos, function, ": ", given.c_str(),
                 ": the name of a file must have no zero byte");
  return given;
}

/// `path` with symbolic links resolved: rename() would replace the link itself.
std::filesystem::path followed(const char* function, std::filesystem::path path) {
  const std::string given = checked_name(function, path);
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();  // refuses links in a circle
  check<IoError>(type != std::filesystem::file_type::none, function, ": ", given,
                 ": cannot open: ", error.message());
  check<IoError>(type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found,
                 function, ": ", given, ": must be a regular file or not exist");
  while (std::filesystem::is_symlink(path, error)) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    check<IoError>(!error, function, ": ", given, ": cannot follow the link: ", error.message());
    path = path.parent_path() / target;  // `target` alone if that is absolute
  }
  return path;
}

}  // namespace

InputFile::InputFile(const char* function, const std::filesystem::path& path) {
  const std::string where = str(function, ": ", checked_name(function, path));
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  check<IoError>(!error, where, ": cannot open: ", error.message());
  check<IoError>(regular, where, ": must be a regular file");
  bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  stream.open(path, std::ios::binary);
  check<IoError>(!error && stream.is_open(), where, ": cannot open (is it readable?)");
}

void read_exactly(std::istream& in, void* to, int64_t bytes, const std::string& where) {
  in.read(static_cast<char*>(to), bytes);
  check<IoError>(in.gcount() == bytes, where, ": cannot read ", bytes, " bytes, got ", in.gcount());
}

uint64_t number_at(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

std::string read_whole(const char* function, const std::filesystem::path& path) {
  InputFile file(function, path);
  std::string bytes(static_cast<size_t>(file.bytes), '\0');
  read_exactly(file.stream, bytes.data(), file.bytes, str(function, ": ", path.string()));
  return bytes;
}

AtomicFile::AtomicFile(const char* function, const std::filesystem::path& path)
    : function_(function), path_(followed(function, path)) {
  // O_EXCL: never opens the file of another writer, or one that a crash left behind.
  for (int number = 0; descriptor_ < 0; ++number) {
    temporary_ = path_;
    temporary_ += str(".tmp", getpid(), '_', number);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail("cannot create", errno);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  for (const char* next = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write", errno);
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  // The bytes must reach the disk before the name: after a power cut the name must not refer to half a file.
  if (fsync(descriptor_) != 0) fail("cannot flush to disk", errno);
  if (close(std::exchange(descriptor_, -1)) != 0) fail("cannot close", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename to its final name", errno);
  temporary_.clear();

  // Flushing the folder writes the name to disk. Some file systems cannot do that; the file is complete in
  // any case.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  if (const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
}

void AtomicFile::fail(const char* what, int error) const {
  throw IoError(
      str(function_, ": ", what, ' ', temporary_.string(), ": ", std::generic_category().message(error)));
}

}  // namespace vox::nn::detail

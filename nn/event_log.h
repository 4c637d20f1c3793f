#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <voxgrad/core/arguments.h>

// What happens during training, in files that spreadsheets and TensorBoard read while it goes on.
namespace vox::nn {

namespace detail {
/// A file that grows: each write() is on its way to the disk when it returns, and throws IoError if it
/// failed.
class GrowingFile {
 public:
  GrowingFile(const char* function, const std::filesystem::path& path);
  void write(const std::string& bytes);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const char* function_;
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// CRC-32C (Castagnoli).
uint32_t crc32c(const std::string& bytes);
}  // namespace detail

/// A table with a line for each row, and the columns' names in the first:
///
///     nn::CsvLog log("run.csv", {"step", "loss", "dice"}, resumed_step);
///     log.row({step, loss, NAN});  // NaN is an empty field
///
/// An existing file is continued: of its rows, those whose first number is at most `last` stay, so that what
/// an interrupted run wrote after its checkpoint does not come twice. By default all go.
class CsvLog {
 public:
  /// Throws ValueError for no columns or a name with a comma, a quote or a line break; IoError if the file
  /// cannot be written, or is one with other columns of which rows would stay.
  CsvLog(const std::filesystem::path& path, const std::vector<std::string>& columns, Real last = -1);
  /// ValueError unless there is a number for each column.
  void row(const std::vector<double>& numbers);

 private:
  size_t columns_;
  std::unique_ptr<detail::GrowingFile> file_;
};

/// Curves for TensorBoard: `tensorboard --logdir folder`. Every object writes a new file, so a resumed run
/// continues the curves.
///
///     nn::TensorBoardLog log("runs/1");
///     log.scalar("loss/train", step, loss);
class TensorBoardLog {
 public:
  explicit TensorBoardLog(const std::filesystem::path& folder);  ///< IoError if it cannot be written
  void scalar(const std::string& tag, Int step, Real value);     ///< f32 in the file

 private:
  void event(const std::string& fields);
  std::unique_ptr<detail::GrowingFile> file_;
};

}  // namespace vox::nn

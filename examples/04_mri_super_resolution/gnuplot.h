// Drawing through the gnuplot program, in a scratch folder of its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mri {

/// A script's working folder: data files go in, one picture comes out, the folder disappears.
class Gnuplot {
 public:
  /// Throws std::runtime_error if no temporary folder can be made.
  Gnuplot();
  ~Gnuplot();
  Gnuplot(const Gnuplot&) = delete;
  Gnuplot& operator=(const Gnuplot&) = delete;

  /// Stores rows of float32 for `plot 'name' binary ...`.
  void add_data(const std::string& name, const std::vector<float>& values);

  /// Runs `script`, which must `set output 'figure.png'`, and moves the picture to `png`.
  /// Throws std::runtime_error if gnuplot is not installed, fails, or prints an error.
  void draw(const std::string& script, const std::filesystem::path& png);

 private:
  std::filesystem::path folder_;
};

/// `text` as a double-quoted gnuplot string, for text that is not to be read as markup use `noenhanced`.
std::string quoted(const std::string& text);

}  // namespace mri

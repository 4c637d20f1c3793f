// Pictures drawn by gnuplot, and texts that are written completely or not at all.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "training.h"
#include "volume.h"

namespace mri {

/// Writes the whole file, or throws vox::IoError and leaves an older one as it was.
void write_text(const std::filesystem::path& path, const std::string& text);

/// A working folder for gnuplot: data files go in, one picture comes out, the folder disappears. Its
/// functions throw std::runtime_error if a file cannot be written, or gnuplot is missing or fails.
class Gnuplot {
 public:
  Gnuplot();
  ~Gnuplot();
  Gnuplot(const Gnuplot&) = delete;
  Gnuplot& operator=(const Gnuplot&) = delete;

  /// Stores rows of float32 for `plot 'name' binary ...`.
  void add_data(const std::string& name, const std::vector<float>& values);
  /// Runs `script`, which must `set output 'figure.png'`, and moves the picture to `png`.
  void draw(const std::string& script, const std::filesystem::path& png);

 private:
  std::filesystem::path folder_;
};

/// `text` as a double-quoted gnuplot string. gnuplot still reads markup in it, except with `noenhanced`.
std::string quoted(const std::string& text);

/// std::snprintf into a string of at most 799 characters.
template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[800];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

/// A plane through a volume: `x` and `y` are the axes that run right and up, `fixed` the third one. So planes
/// stand upright: front or top of the head is up, the subject's left is left.
struct Plane {
  const char* name;
  int fixed, x, y;
};
constexpr Plane kAxial{"axial", 0, 2, 1}, kCoronal{"coronal", 1, 2, 0}, kSagittal{"sagittal", 2, 1, 0};

/// The part `box` of plane number `at`, bottom row first. `shrink` is 2 for half the resolution.
std::vector<float> pixels(const Volume& volume, const Plane& plane, const Box& box, int64_t at,
                          int64_t shrink = 1);

struct CurveFigure {
  std::string loss_title, score_title;
  std::string score_axis;     ///< gnuplot's commands for its range, format and key
  std::string baseline_name;  ///< of a line to beat; empty: none
  double baseline = 0;
};

/// Draws the loss and the score against the step.
void draw_curves(const History& history, const CurveFigure& figure, const std::filesystem::path& png);

}  // namespace mri

#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include <voxgrad/core/arguments.h>

namespace vox::nn {

struct ProgressOptions {
  vox::detail::ByName by_name{};
  int64_t done = 0;  ///< steps that an earlier run made, if this one resumes it
  double seconds = std::numeric_limits<double>::infinity();  ///< after which the run ends in any case
  std::FILE* out = stderr;
};

/// Draws `[#####.....] 120/600  loss 0.000213  8.1 steps/s  0:59 left`:
///
///     nn::Progress progress(600);
///     for (int64_t step = 1; step <= 600; ++step) progress.update(step, str("loss ", take_step()));
///
/// On a terminal it redraws one line, a few times a second; elsewhere it prints a line every few seconds.
class Progress {
 public:
  /// ValueError unless 0 <= options.done <= total, and if out is null or seconds is NaN.
  explicit Progress(Int total, const ProgressOptions& options = {});
  ~Progress();  ///< ends the line on the terminal
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `step` steps are done. `text` is shown between them and the speed.
  void update(Int step, const std::string& text = "");

 private:
  std::string line(int64_t step, const std::string& text) const;

  using Clock = std::chrono::steady_clock;
  int64_t total_;
  ProgressOptions options_;
  bool is_terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool line_stands_ = false;
};

}  // namespace vox::nn

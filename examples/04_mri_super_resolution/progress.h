// One line that tells how the training goes.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

namespace mri {

/// Draws `[#####.....] 120/600  loss 0.000213  36.71 dB  8.1 steps/s  0:59 left`.
/// On a terminal it redraws one line, a few times a second; elsewhere it prints a line every few seconds.
class Progress {
 public:
  /// `done` steps were made before, by the run that is being resumed. The training ends after `seconds` from
  /// now even if steps are left.
  Progress(int64_t done, int64_t total, std::FILE* out = stderr,
           double seconds = std::numeric_limits<double>::infinity());
  /// Ends the line that stands.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that `step` steps are done. `psnr` is the training patches' PSNR in dB.
  void update(int64_t step, double loss, double psnr);

 private:
  std::string line(int64_t step, double loss, double psnr) const;

  using Clock = std::chrono::steady_clock;
  int64_t first_, total_;
  std::FILE* out_;
  double seconds_;
  bool is_terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool line_stands_ = false;
};

}  // namespace mri

#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace mri {

Progress::Progress(int64_t done, int64_t total, std::FILE* out, double seconds)
    : first_(done), total_(total), out_(out), seconds_(seconds), is_terminal_(isatty(fileno(out)) == 1) {}

Progress::~Progress() {
  if (line_stands_) std::fputc('\n', out_);
}

std::string Progress::line(int64_t step, double loss, double psnr) const {
  constexpr int kWidth = 24;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double speed = seconds > 0 ? static_cast<double>(step - first_) / seconds : 0;
  const double of_steps = speed > 0 ? static_cast<double>(total_ - step) / speed : 0;
  const double left = std::ceil(std::clamp(seconds_ - seconds, 0.0, of_steps));
  const auto filled = static_cast<int>(kWidth * step / std::max<int64_t>(total_, 1));
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  char text[200];
  std::snprintf(text, sizeof text, "[%s] %lld/%lld  loss %.6f  %.2f dB  %.1f steps/s  %lld:%02d left",
                bar.c_str(), static_cast<long long>(step), static_cast<long long>(total_), loss, psnr, speed,
                static_cast<long long>(left / 60), static_cast<int>(std::fmod(left, 60)));
  return text;
}

void Progress::update(int64_t step, double loss, double psnr) {
  const auto now = Clock::now();
  const bool last = step == total_;
  const auto pause = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
  if (!last && now - drawn_ < pause) return;
  drawn_ = now;
  // \033[K clears what a longer line left behind.
  std::fprintf(out_, is_terminal_ ? "\r%s\033[K" : "%s\n", line(step, loss, psnr).c_str());
  std::fflush(out_);
  line_stands_ = is_terminal_;
}

}  // namespace mri

#include <voxgrad/core/check.h>
#include <voxgrad/nn/progress.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace vox::nn {

Progress::Progress(Int total, const ProgressOptions& options)
    : total_(total), options_(options), is_terminal_(options.out && isatty(fileno(options.out)) == 1) {
  check<ValueError>(options.out && !std::isnan(options.seconds), "Progress: needs a file and seconds, got ",
                    options.out ? "NaN seconds" : "no file");
  check<ValueError>(options.done >= 0 && options.done <= total, "Progress: needs 0 <= done <= total, got ",
                    options.done, " of ", total);
}

Progress::~Progress() {
  if (line_stands_) std::fputc('\n', options_.out);
}

std::string Progress::line(int64_t step, const std::string& text) const {
  constexpr int width = 24;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double speed = seconds > 0 ? static_cast<double>(step - options_.done) / seconds : 0;
  const double of_steps = speed > 0 ? static_cast<double>(total_ - step) / speed : 0;
  const double left = std::ceil(std::clamp(options_.seconds - seconds, 0.0, of_steps));
  // Steps or time, whichever ends the run first.
  const double of_all = static_cast<double>(step) / static_cast<double>(std::max<int64_t>(total_, 1));
  const double of_time = options_.seconds > 0 ? seconds / options_.seconds : 1;
  const auto filled = static_cast<size_t>(width * std::clamp(std::max(of_all, of_time), 0.0, 1.0));
  char rate[80];
  std::snprintf(rate, sizeof rate, "%.1f steps/s  %lld:%02d left", speed, static_cast<long long>(left / 60),
                static_cast<int>(std::fmod(left, 60)));
  return str('[', std::string(filled, '#'), std::string(width - filled, '.'), "] ", step, '/', total_, "  ",
             text, text.empty() ? "" : "  ", rate);
}

void Progress::update(Int step, const std::string& text) {
  const auto now = Clock::now();
  const auto pause = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
  if (step != total_ && now - drawn_ < pause) return;
  drawn_ = now;
  // \033[K clears the rest of a longer previous line.
  std::fprintf(options_.out, is_terminal_ ? "\r%s\033[K" : "%s\n", line(step, text).c_str());
  std::fflush(options_.out);
  line_stands_ = is_terminal_;
}

}  // namespace vox::nn

#include <voxgrad/core/check.h>
#include <voxgrad/nn/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vox::optim {

double step_lr(int64_t step, const StepSchedule& s) {
  check<ValueError>(step >= 0 && s.step_size > 0, "step_lr: needs step >= 0 and step_size > 0, got ", step,
                    " and ", s.step_size);
  return s.base_lr * std::pow(s.gamma, static_cast<double>(step / s.step_size));
}

double warmup(int64_t step, int64_t warmup_steps) {
  check<ValueError>(step >= 0 && warmup_steps >= 0, "warmup: needs step >= 0 and warmup_steps >= 0, got ",
                    step, " and ", warmup_steps);
  return step >= warmup_steps ? 1 : static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
}

namespace {

/// Which part of the steps after the warm-up is done, up to 1.
template <class Schedule>
double progress(const char* function, int64_t step, const Schedule& s) {
  check<ValueError>(step >= 0 && s.warmup_steps >= 0 && s.total_steps > s.warmup_steps, function,
                    ": needs step >= 0 and total_steps > warmup_steps >= 0, got step ", step,
                    ", total_steps ", s.total_steps, ", warmup_steps ", s.warmup_steps);
  const int64_t done = std::clamp<int64_t>(step - s.warmup_steps, 0, s.total_steps - s.warmup_steps);
  return static_cast<double>(done) / static_cast<double>(s.total_steps - s.warmup_steps);
}

}  // namespace

double cosine_lr(int64_t step, const CosineSchedule& s) {
  const double done = progress("cosine_lr", step, s);
  if (step < s.warmup_steps) return s.base_lr * warmup(step, s.warmup_steps);
  return s.min_lr + (s.base_lr - s.min_lr) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

double polynomial_lr(int64_t step, const PolynomialSchedule& s) {
  check<ValueError>(s.power >= 0, "polynomial_lr: power must be >= 0, got ", s.power);
  return s.base_lr * warmup(step, s.warmup_steps) * std::pow(1 - progress("polynomial_lr", step, s), s.power);
}

}  // namespace vox::optim

#include <voxgrad/core/check.h>
#include <voxgrad/nn/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vox::optim {

double step_lr(Int step, const StepSchedule& s) {
  check<ValueError>(step >= 0 && s.step_size > 0, "step_lr: needs step >= 0 and step_size > 0, got ", step,
                    " and ", s.step_size);
  return s.base_lr * std::pow(s.gamma, static_cast<double>(step / s.step_size));
}

double cosine_lr(Int step, const CosineSchedule& s) {
  check<ValueError>(step >= 0 && s.warmup_steps >= 0 && s.total_steps > s.warmup_steps,
                    "cosine_lr: needs step >= 0 and total_steps > warmup_steps >= 0, got step ", step,
                    ", total_steps ", s.total_steps, ", warmup_steps ", s.warmup_steps);
  if (step < s.warmup_steps) return s.base_lr * warmup(step, s.warmup_steps);
  if (step >= s.total_steps) return s.min_lr;
  const double progress =
      static_cast<double>(step - s.warmup_steps) / static_cast<double>(s.total_steps - s.warmup_steps);
  return s.min_lr + (s.base_lr - s.min_lr) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double polynomial_lr(Int step, const PolynomialSchedule& s) {
  check<ValueError>(step >= 0 && s.total_steps > 0 && s.power >= 0,
                    "polynomial_lr: needs step >= 0, total_steps > 0 and power >= 0, got ", step, ", ",
                    s.total_steps, " and ", s.power);
  const auto left = static_cast<double>(std::max<int64_t>(s.total_steps - step, 0));
  return s.base_lr * std::pow(left / static_cast<double>(s.total_steps), s.power);
}

double warmup(Int step, Int warmup_steps) {
  check<ValueError>(step >= 0 && warmup_steps >= 0, "warmup: needs step and warmup_steps >= 0, got ", step,
                    " and ", warmup_steps);
  return step >= warmup_steps ? 1 : static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
}

}  // namespace vox::optim

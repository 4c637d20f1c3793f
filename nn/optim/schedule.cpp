#include <voxgrad/core/check.h>
#include <voxgrad/nn/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vox::optim {

namespace {

/// From `start`, at progress 0, along half a cosine to `end`, at progress 1.
double half_cosine(double start, double end, double progress) {
  return end + (start - end) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

/// base_lr, which is 0 where a caller forgot it.
double checked(const char* function, double base_lr) {
  check<ValueError>(base_lr > 0, function, ": base_lr must be above 0, got ", base_lr);
  return base_lr;
}

}  // namespace

double exponential_lr(Int step, const ExponentialSchedule& s) {
  check<ValueError>(step >= 0, "exponential_lr: needs step >= 0, got ", step);
  return checked("exponential_lr", s.base_lr) * std::pow(s.gamma, static_cast<double>(step));
}

double warm_restarts_lr(Int step, const WarmRestartsSchedule& s) {
  check<ValueError>(step >= 0 && s.period > 0 && s.period_factor > 0,
                    "warm_restarts_lr: needs step >= 0, period > 0 and period_factor > 0, got ", step, ", ",
                    s.period, " and ", s.period_factor);
  auto at = static_cast<double>(step), period = static_cast<double>(s.period);
  if (s.period_factor == 1) at = std::fmod(at, period);
  for (; at >= period; period *= static_cast<double>(s.period_factor)) at -= period;
  return half_cosine(checked("warm_restarts_lr", s.base_lr), s.min_lr, at / period);
}

double one_cycle_lr(Int step, const OneCycleSchedule& s) {
  check<ValueError>(step >= 0 && s.total_steps > 0 && s.pct_start >= 0 && s.pct_start <= 1,
                    "one_cycle_lr: needs step >= 0, total_steps > 0 and pct_start in [0, 1], got ", step,
                    ", ", s.total_steps, " and ", s.pct_start);
  check<ValueError>(s.max_lr > 0 && s.div_factor > 0 && s.final_div_factor > 0,
                    "one_cycle_lr: max_lr, div_factor and final_div_factor must be > 0, got ", s.max_lr, ", ",
                    s.div_factor, " and ", s.final_div_factor);
  const double first = s.max_lr / s.div_factor, last = first / s.final_div_factor;
  const double peak = s.pct_start * static_cast<double>(s.total_steps) - 1;
  const auto at = static_cast<double>(step), end = static_cast<double>(s.total_steps - 1);
  const auto between = [&](double from, double to, double progress) {
    return s.linear ? from + (to - from) * progress : half_cosine(from, to, progress);
  };
  if (at <= peak) return peak > 0 ? between(first, s.max_lr, at / peak) : s.max_lr;
  return at < end ? between(s.max_lr, last, (at - peak) / (end - peak)) : last;
}

double step_lr(Int step, const StepSchedule& s) {
  check<ValueError>(step >= 0 && s.step_size > 0, "step_lr: needs step >= 0 and step_size > 0, got ", step,
                    " and ", s.step_size);
  return checked("step_lr", s.base_lr) * std::pow(s.gamma, static_cast<double>(step / s.step_size));
}

double cosine_lr(Int step, const CosineSchedule& s) {
  check<ValueError>(step >= 0 && s.warmup_steps >= 0 && s.total_steps > s.warmup_steps,
                    "cosine_lr: needs step >= 0 and total_steps > warmup_steps >= 0, got step ", step,
                    ", total_steps ", s.total_steps, ", warmup_steps ", s.warmup_steps);
  const double base = checked("cosine_lr", s.base_lr);
  if (step < s.warmup_steps) return base * warmup(step, s.warmup_steps);
  if (step >= s.total_steps) return s.min_lr;
  const double progress =
      static_cast<double>(step - s.warmup_steps) / static_cast<double>(s.total_steps - s.warmup_steps);
  return half_cosine(base, s.min_lr, progress);
}

double polynomial_lr(Int step, const PolynomialSchedule& s) {
  check<ValueError>(step >= 0 && s.total_steps > 0 && s.power >= 0,
                    "polynomial_lr: needs step >= 0, total_steps > 0 and power >= 0, got ", step, ", ",
                    s.total_steps, " and ", s.power);
  const auto left = static_cast<double>(std::max<int64_t>(s.total_steps - step, 0));
  return checked("polynomial_lr", s.base_lr) * std::pow(left / static_cast<double>(s.total_steps), s.power);
}

double warmup(Int step, Int warmup_steps) {
  check<ValueError>(step >= 0 && warmup_steps >= 0, "warmup: needs step and warmup_steps >= 0, got ", step,
                    " and ", warmup_steps);
  return step >= warmup_steps ? 1 : static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
}

}  // namespace vox::optim

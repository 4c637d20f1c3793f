#pragma once

#include <voxgrad/core/arguments.h>

/// Learning rates as pure functions of the number of steps, so a resumed run needs no schedule state.
///
///     optimizer.set_lr(optim::cosine_lr(step, {.base_lr = 1e-3, .total_steps = 1000}));
namespace vox::optim {

struct StepSchedule {
  vox::detail::ByName by_name{};
  double base_lr;
  int64_t step_size;  ///< steps between two decays
  double gamma = 0.1;
};
/// base_lr * gamma^floor(step / step_size), as torch.optim.lr_scheduler.StepLR.
double step_lr(Int step, const StepSchedule& schedule);

struct ExponentialSchedule {
  vox::detail::ByName by_name{};
  double base_lr;
  double gamma;
};
/// base_lr * gamma^step, as torch.optim.lr_scheduler.ExponentialLR.
double exponential_lr(Int step, const ExponentialSchedule& schedule);

struct CosineSchedule {
  vox::detail::ByName by_name{};
  double base_lr;
  int64_t total_steps;  ///< with the warm-up
  double min_lr = 0;
  int64_t warmup_steps = 0;  ///< linear from base_lr / warmup_steps to base_lr
};
/// min_lr + (base_lr - min_lr) * (1 + cos(pi * (step - warmup_steps) / (total_steps - warmup_steps))) / 2
/// after the warm-up, as CosineAnnealingLR in closed form (Loshchilov & Hutter, arXiv 1608.03983); min_lr
/// after total_steps.
double cosine_lr(Int step, const CosineSchedule& schedule);

struct WarmRestartsSchedule {
  vox::detail::ByName by_name{};
  double base_lr;
  int64_t period;             ///< steps of the first period (T_0 in PyTorch)
  int64_t period_factor = 1;  ///< each period is longer than the one before by this factor (T_mult)
  double min_lr = 0;
};
/// Half a cosine from base_lr towards min_lr in each period, as CosineAnnealingWarmRestarts (arXiv
/// 1608.03983).
double warm_restarts_lr(Int step, const WarmRestartsSchedule& schedule);

struct OneCycleSchedule {
  vox::detail::ByName by_name{};
  double max_lr;
  int64_t total_steps;
  double pct_start = 0.3;  ///< the part of the steps in which the rate rises
  double div_factor = 25, final_div_factor = 1e4;
  bool linear = false;  ///< straight lines (anneal_strategy="linear"); otherwise halves of cosines
};
/// From max_lr / div_factor to max_lr in pct_start * total_steps - 1 steps, then down to
/// max_lr / div_factor / final_div_factor in the last step, total_steps - 1, and there after it, as
/// OneCycleLR (Smith & Topin, arXiv 1708.07120), without its cycle of the momentum.
double one_cycle_lr(Int step, const OneCycleSchedule& schedule);

struct PolynomialSchedule {
  vox::detail::ByName by_name{};
  double base_lr;
  int64_t total_steps;
  double power = 0.9;  ///< as in nnU-Net
};
/// base_lr * (1 - step / total_steps)^power, as torch.optim.lr_scheduler.PolynomialLR; 0 after total_steps.
double polynomial_lr(Int step, const PolynomialSchedule& schedule);

/// (step + 1) / warmup_steps, at most 1: a factor that warms any schedule up, as
/// `warmup(step, 100) * polynomial_lr(step, {...})`. (The schedule itself also advances meanwhile, unlike
/// that of CosineSchedule::warmup_steps.)
double warmup(Int step, Int warmup_steps);

}  // namespace vox::optim

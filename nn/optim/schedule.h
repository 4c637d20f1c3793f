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

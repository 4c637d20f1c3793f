#pragma once

#include <voxgrad/nn/optim/optimizer.h>

namespace vox::optim {

struct PlateauOptions {
  vox::detail::ByName by_name{};
  bool maximize = false;  ///< whether a larger metric is a better one (mode="max")
  double factor = 0.1;
  int64_t patience = 10;               ///< steps without improvement that are forgiven
  double threshold = 1e-4;             ///< a smaller improvement is none
  bool threshold_is_absolute = false;  ///< otherwise it is a part of the best metric
  int64_t cooldown = 0;                ///< steps after a reduction that are not counted
  double min_lr = 0, eps = 1e-8;       ///< a reduction below min_lr, or by eps or less, is left out
};

/// Multiplies the learning rates of all groups by `factor` once a metric has not improved for more than
/// `patience` steps, as torch.optim.lr_scheduler.ReduceLROnPlateau:
///
///     optim::ReduceLROnPlateau plateau(optimizer, {.patience = 5});
///     plateau.step(validation_loss);  // once an epoch
///
/// The optimiser must live as long.
class ReduceLROnPlateau {
 public:
  using State = Optimizer::State;

  /// Throws ValueError unless 0 <= factor < 1, and patience, cooldown, threshold, min_lr and eps are >= 0.
  explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});

  /// Returns whether it reduced a rate. A NaN is no improvement.
  bool step(Real metric);
  int64_t bad_steps() const { return bad_; }

  /// The best metric, both counters, and the learning rates, which the optimiser's own state lacks.
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  bool is_better(double metric) const;

  Optimizer& optimizer_;
  PlateauOptions options_;
  double best_;
  int64_t bad_ = 0, cooldown_ = 0;
};

}  // namespace vox::optim

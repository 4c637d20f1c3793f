#pragma once

#include <map>
#include <optional>
#include <string>

#include <voxgrad/nn/optim/optimizer.h>

namespace vox::optim {

struct GradScalerOptions {
  vox::detail::ByName by_name{};
  double init_scale = 65536;
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< steps without overflow before the scale grows
  bool enabled = true;             ///< if false, scale() and step() do nothing of their own
};

/// Loss scaling for f16 (Micikevicius et al., arXiv 1710.03740) like torch.cuda.amp.GradScaler. Gradients
/// that are too small for f16 become 0. So the loss is multiplied by a scale before the backward, and the
/// gradients are divided by it afterwards. A step with gradients that are not finite is skipped, and lowers
/// the scale.
///
///     optim::GradScaler scaler;
///     adam.zero_grad();
///     {
///       const auto guard = vox::autocast(vox::f16);
///       loss = vox::cross_entropy(net(x), target);
///     }
///     scaler.scale(loss).backward();
///     scaler.step(adam);
///     scaler.update();
///
/// Parameters and their gradients stay f32.
class GradScaler {
 public:
  using State = std::map<std::string, Tensor>;

  /// Throws ValueError unless init_scale is positive, growth_factor > 1, 0 < backoff_factor < 1 and
  /// growth_interval > 0.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// loss times the scale, in f32 at least.
  Tensor scale(const Tensor& loss) const;

  /// Divides the gradients of the optimiser's parameters by the scale. step() does it; call it before step()
  /// to clip the gradients. Throws ValueError if it was called since the last update(), DTypeError for f16
  /// gradients, which would vanish again.
  void unscale_(Optimizer& optimizer);

  /// Calls optimizer.step() unless a gradient is not finite; returns whether it did. Waits for the device.
  /// Throws ValueError for a second call before update().
  bool step(Optimizer& optimizer);

  /// Adapts the scale once all optimisers have stepped. Throws ValueError if none has.
  void update();

  double get_scale() const { return options_.enabled ? scale_ : 1; }

  /// The scale, and the number of steps since it changed.
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  struct Progress {
    bool finite = true, stepped = false;
  };

  GradScalerOptions options_;
  double scale_;
  int64_t steps_since_change_ = 0;
  std::map<const Optimizer*, Progress> progress_;  // since the last update()
};

}  // namespace vox::optim

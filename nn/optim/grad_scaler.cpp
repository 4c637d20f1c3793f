#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/optim/grad_scaler.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/reduce.h>

#include <algorithm>
#include <cmath>

namespace vox::optim {

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), scale_(options.init_scale) {
  check<ValueError>(scale_ > 0 && std::isfinite(scale_), "GradScaler: init_scale must be positive, got ",
                    scale_);
  check<ValueError>(options.growth_factor > 1, "GradScaler: growth_factor must be > 1, got ",
                    options.growth_factor);
  check<ValueError>(options.backoff_factor > 0 && options.backoff_factor < 1,
                    "GradScaler: backoff_factor must be between 0 and 1, got ", options.backoff_factor);
  check<ValueError>(options.growth_interval > 0, "GradScaler: growth_interval must be positive, got ",
                    options.growth_interval);
}

Tensor GradScaler::scale(const Tensor& loss) const {
  detail::check_floating("GradScaler::scale", "loss", loss);
  return options_.enabled ? loss.to(opmath(loss.dtype())) * scale_ : loss;
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  check<ValueError>(!progress_.contains(&optimizer),
                    "GradScaler::unscale_: was called for this optimiser since the last update()");
  const auto guard = no_grad();
  std::vector<Tensor> gradients;
  for (const Tensor& p : optimizer.parameters()) {
    const Tensor g = p.grad();
    if (!g.defined()) continue;
    check<DTypeError>(g.dtype() != f16, "GradScaler::unscale_: a gradient of shape ", g.shape(),
                      " has dtype f16; keep f32 parameters and use autocast");
    gradients.push_back(g);
  }
  std::vector<Tensor> sums;  // one per device, of g * 0: NaN if an element of a gradient is not finite
  for (Tensor& g : gradients) {
    g.mul_(1 / scale_);
    const Tensor zero = sum((g * 0).to(opmath(g.dtype()))).to(f32);
    const auto same =
        std::find_if(sums.begin(), sums.end(), [&](const Tensor& t) { return t.device() == zero.device(); });
    if (same == sums.end())
      sums.push_back(zero);
    else
      same->add_(zero);
  }
  progress_[&optimizer].finite =
      std::all_of(sums.begin(), sums.end(), [](const Tensor& t) { return t.item<float>() == 0; });
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) return optimizer.step(), true;
  if (!progress_.contains(&optimizer)) unscale_(optimizer);
  Progress& progress = progress_[&optimizer];
  check<ValueError>(!progress.stepped,
                    "GradScaler::step: was called for this optimiser since the last update()");
  progress.stepped = true;
  if (progress.finite) optimizer.step();
  return progress.finite;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  check<ValueError>(!progress_.empty(), "GradScaler::update: call step() first");
  const bool finite =
      std::all_of(progress_.begin(), progress_.end(), [](const auto& entry) { return entry.second.finite; });
  progress_.clear();
  if (!finite) {
    scale_ *= options_.backoff_factor;
    steps_since_change_ = 0;
  } else if (++steps_since_change_ == options_.growth_interval) {
    const double grown = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(grown))) scale_ = grown;
    steps_since_change_ = 0;
  }
}

GradScaler::State GradScaler::state_dict() const {
  return {{"scale", full({}, scale_, {f64})}, {"growth_tracker", full({}, steps_since_change_, {i64})}};
}

void GradScaler::load_state_dict(const State& state) {
  const auto entry = [&](const char* name) {
    const auto found = state.find(name);
    check<ValueError>(found != state.end(), "GradScaler::load_state_dict: '", name, "' is missing");
    return found->second;
  };
  const Tensor scale_entry = entry("scale"), steps_entry = entry("growth_tracker");
  const double scale =
      in_the_name_of("GradScaler::load_state_dict: 'scale'", [&] { return scale_entry.item<double>(); });
  const int64_t steps = in_the_name_of("GradScaler::load_state_dict: 'growth_tracker'",
                                       [&] { return steps_entry.item<int64_t>(); });
  check<ValueError>(scale > 0 && std::isfinite(scale) && steps >= 0,
                    "GradScaler::load_state_dict: the scale must be positive and the steps >= 0, got ", scale,
                    " and ", steps);
  scale_ = scale;
  steps_since_change_ = steps;
}

}  // namespace vox::optim

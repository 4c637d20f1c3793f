#include <voxgrad/core/factories.h>
#include <voxgrad/nn/optim/plateau.h>

#include <algorithm>
#include <limits>

namespace vox::optim {

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& o)
    : optimizer_(optimizer),
      options_(o),
      best_(std::numeric_limits<double>::infinity() * (o.maximize ? -1 : 1)) {
  check<ValueError>(o.factor >= 0 && o.factor < 1, "ReduceLROnPlateau: factor must be in [0, 1), got ",
                    o.factor);
  check<ValueError>(o.patience >= 0 && o.cooldown >= 0 && o.threshold >= 0 && o.min_lr >= 0 && o.eps >= 0,
                    "ReduceLROnPlateau: patience, cooldown, threshold, min_lr and eps must be >= 0, got ",
                    o.patience, ", ", o.cooldown, ", ", o.threshold, ", ", o.min_lr, " and ", o.eps);
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const double sign = options_.maximize ? 1 : -1;
  // PyTorch's relative threshold multiplies the best metric itself, whatever its sign.
  const double bound = options_.threshold_is_absolute ? best_ + sign * options_.threshold
                                                      : best_ * (1 + sign * options_.threshold);
  return options_.maximize ? metric > bound : metric < bound;
}

bool ReduceLROnPlateau::step(Real metric) {
  if (is_better(metric)) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) --cooldown_, bad_ = 0;
  if (bad_ <= options_.patience) return false;
  cooldown_ = options_.cooldown;
  bad_ = 0;
  bool reduced = false;
  for (size_t group = 0; group < optimizer_.group_count(); ++group) {
    const double old = optimizer_.lr(group), lower = std::max(old * options_.factor, options_.min_lr);
    if (old - lower <= options_.eps) continue;
    optimizer_.set_lr(lower, group);
    reduced = true;
  }
  return reduced;
}

ReduceLROnPlateau::State ReduceLROnPlateau::state_dict() const {
  std::vector<double> rates;
  for (size_t group = 0; group < optimizer_.group_count(); ++group) rates.push_back(optimizer_.lr(group));
  return {{"best", full({}, best_, {f64})},
          {"num_bad_epochs", full({}, bad_, {i64})},
          {"cooldown_counter", full({}, cooldown_, {i64})},
          {"lr", from_vector(rates, static_cast<int64_t>(rates.size()))}};
}

void ReduceLROnPlateau::load_state_dict(const State& state) {
  const auto entry = [&](const char* name) {
    const auto found = state.find(name);
    check<ValueError>(found != state.end(), "ReduceLROnPlateau::load_state_dict: '", name, "' is missing");
    return found->second;
  };
  in_the_name_of("ReduceLROnPlateau::load_state_dict", [&] {
    const double best = entry("best").item();
    const int64_t bad = entry("num_bad_epochs").item<int64_t>(),
                  cooldown = entry("cooldown_counter").item<int64_t>();
    const std::vector<double> rates = entry("lr").to_vector<double>();
    check<ValueError>(bad >= 0 && cooldown >= 0 && rates.size() == optimizer_.group_count(),
                      "the counters must be >= 0, got ", bad, " and ", cooldown,
                      ", and there must be a rate for each of the ", optimizer_.group_count(),
                      " groups, got ", rates.size());
    check<ValueError>(
        std::all_of(rates.begin(), rates.end(), [](double lr) { return lr >= 0 && lr < 1e300; }),
        "'lr' must be finite and >= 0");
    for (size_t group = 0; group < rates.size(); ++group) optimizer_.set_lr(rates[group], group);
    best_ = best, bad_ = bad, cooldown_ = cooldown;
  });
}

}  // namespace vox::optim

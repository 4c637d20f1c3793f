#pragma once

#include <cmath>

#include <voxgrad/ops/optimizer_step.h>

namespace vox::detail {

/// The formula of Adam, or, if `decoupled`, AdamW (nn/optim/adam.h).
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;

  VOX_HOST_DEVICE UpdateNumbers numbers(int64_t update) const {
    const auto t = static_cast<double>(update);
    return {lr / (1 - std::pow(beta1, t)), 1 / (1 - std::pow(beta2, t))};
  }

  template <class C>
  struct Formula {
    C beta1, beta2, rest1, rest2, eps, decay, shrink;
    explicit Formula(const AdamStep& s)
        : beta1(static_cast<C>(s.beta1)),
          beta2(static_cast<C>(s.beta2)),
          rest1(static_cast<C>(1 - s.beta1)),
          rest2(static_cast<C>(1 - s.beta2)),
          eps(static_cast<C>(s.eps)),
          decay(static_cast<C>(s.decoupled ? 0 : s.weight_decay)),
          shrink(static_cast<C>(s.decoupled ? 1 - s.lr * s.weight_decay : 1)) {}
    VOX_HOST_DEVICE void operator()(C& p, C g, C& m, C& v, C scale, C scale2) const {
      if (decay != C(0)) g += decay * p;
      m = beta1 * m + rest1 * g;
      v = beta2 * v + rest2 * (g * g);
      p = shrink * p - scale * (m / (std::sqrt(v * scale2) + eps));
    }
  };
};

}  // namespace vox::detail

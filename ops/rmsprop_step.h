#pragma once

#include <cmath>

#include <voxgrad/ops/optimizer_step.h>

namespace vox::detail {

/// The formula of RMSprop (nn/optim/rmsprop.h). The second buffer is the mean of the gradients if `centered`,
/// else the momentum.
struct RmspropStep {
  double lr, alpha, eps, weight_decay, momentum;
  bool centered;

  VOX_HOST_DEVICE UpdateNumbers numbers(int64_t) const { return {lr, 0}; }

  template <class C>
  struct Formula {
    C alpha, rest, eps, decay, momentum;
    bool centered;
    explicit Formula(const RmspropStep& s)
        : alpha(static_cast<C>(s.alpha)),
          rest(static_cast<C>(1 - s.alpha)),
          eps(static_cast<C>(s.eps)),
          decay(static_cast<C>(s.weight_decay)),
          momentum(static_cast<C>(s.momentum)),
          centered(s.centered) {}
    VOX_HOST_DEVICE void operator()(C& p, C g, C& square, C& second, C lr, C) const {
      if (decay != C(0)) g += decay * p;
      square = alpha * square + rest * (g * g);
      C variance = square;
      if (centered) {
        second = alpha * second + rest * g;
        variance -= second * second;
      }
      C step = g / (std::sqrt(variance) + eps);
      if (momentum != C(0)) step = second = momentum * second + step;
      p -= lr * step;
    }
  };
};

}  // namespace vox::detail

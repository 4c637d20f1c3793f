#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include <voxgrad/core/host_device.h>
#include <voxgrad/core/tensor.h>

// The steps of the optimisers in nn/optim, shared by both devices. They compute element by element, in C =
// opmath(dtype); the buffers have dtype C too. A parameter is rounded once.

namespace vox::detail {

/// A parameter and what a step needs of it: dense tensors of one shape on one device. `gradient` has the
/// dtype of `parameter`, the buffers opmath(dtype); those that the optimiser does not use are undefined.
/// `updates`, one i64, counts the updates of the parameter.
struct OptimizerItem {
  Tensor parameter, gradient;
  std::array<Tensor, 2> buffers;
  Tensor updates;
};

/// The last two arguments of a formula. They depend on the number of the update, which counts from 1, and are
/// computed once per parameter.
struct UpdateNumbers {
  double scale, scale2;
};

/// The formula of SGD (nn/optim/sgd.h).
struct SgdStep {
  double lr, momentum, weight_decay;
  bool nesterov;

  VOX_HOST_DEVICE UpdateNumbers numbers(int64_t) const { return {lr, 0}; }

  template <class C>
  struct Formula {
    C momentum, weight_decay;
    bool nesterov;
    explicit Formula(const SgdStep& s)
        : momentum(static_cast<C>(s.momentum)),
          weight_decay(static_cast<C>(s.weight_decay)),
          nesterov(s.nesterov) {}
    VOX_HOST_DEVICE void operator()(C& p, C g, C& m, C&, C lr, C) const {
      if (weight_decay != C(0)) g += weight_decay * p;
      if (momentum != C(0)) {
        m = momentum * m + g;  // starts at zero, so the first update gives g
        g = nesterov ? g + momentum * m : m;
      }
      p -= lr * g;
    }
  };
};

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

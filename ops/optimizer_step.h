#pragma once

#include <array>
#include <cstdint>

#include <voxgrad/core/host_device.h>
#include <voxgrad/core/tensor.h>

// The step of SGD (adam_step.h: that of Adam), shared by both devices. They compute element by element, in C
// = opmath(dtype); the buffers have dtype C too. A parameter is rounded once.

namespace vox::detail {

/// A parameter and what a step needs of it: dense tensors of one shape on one device. `gradient` has the
/// dtype of `parameter`, the buffers opmath(dtype); those that the optimiser does not use are undefined.
/// `updates`, one i64, counts the updates of the parameter. On CUDA the first item of a step has `numbers`,
/// room for the UpdateNumbers of a launch.
struct OptimizerItem {
  Tensor parameter, gradient;
  std::array<Tensor, 2> buffers;
  Tensor updates, numbers;
};
inline constexpr int64_t most_in_launch = 72;  // parameters

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

}  // namespace vox::detail

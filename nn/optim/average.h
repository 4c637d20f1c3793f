#pragma once

#include <voxgrad/nn/module.h>

namespace vox::optim {

struct AverageOptions {
  vox::detail::ByName by_name{};
  double decay = 0.999;
};

/// A moving average of a network's weights, which often generalises better than the last ones:
///
///     optim::ExponentialMovingAverage average(net, {.decay = 0.999});
///     optimizer.step(), average.update();
///     average.swap();  // the network computes with the average, until the next swap()
///
/// Parameters and floating buffers (running statistics) become decay * average + (1 - decay) * value; other
/// buffers are copied. Averages of bf16 and f16 are kept in f32, where small steps are not lost. It holds
/// handles, so the network may be moved in memory, but not gain or lose parameters.
class ExponentialMovingAverage {
 public:
  /// Starts with the values that the network has. Throws ValueError unless 0 <= decay < 1.
  explicit ExponentialMovingAverage(const nn::Module& network, const AverageOptions& options = {});

  /// Averages the present values in.
  void update();
  /// Exchanges the network's values with the average.
  void swap();

  /// The average under the network's names, so a network of this kind, PyTorch's too, can load it.
  nn::StateDict state_dict() const;
  /// Throws ValueError or ShapeError, and changes nothing, unless names and shapes are the network's.
  void load_state_dict(const nn::StateDict& state);

 private:
  double decay_;
  nn::StateDict values_, average_;
};

}  // namespace vox::optim

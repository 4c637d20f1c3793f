#pragma once

#include <voxgrad/nn/optim/optimizer.h>

namespace vox::optim {

/// RMSprop (Hinton 2012) as torch.optim.RMSprop:
///
///     g += weight_decay * p
///     v = alpha * v + (1 - alpha) * g^2,   a = alpha * a + (1 - alpha) * g
///     s = g / (sqrt(centered ? v - a^2 : v) + eps)
///     m = momentum * m + s
///     p -= lr * m
///
/// `centered` and momentum do not go together. Groups may differ in everything except `centered` and whether
/// there is a momentum.
class RMSprop final : public Optimizer {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    double lr = 1e-2;
    double alpha = 0.99;
    double eps = 1e-8;
    double weight_decay = 0;
    double momentum = 0;
    bool centered = false;
  };
  explicit RMSprop(std::vector<Tensor> parameters) : RMSprop(std::move(parameters), Options{}) {}
  explicit RMSprop(std::vector<Tensor> parameters, const Options& options) {
    add_group(std::move(parameters), options);
  }
  void add_group(std::vector<Tensor> parameters, const Options& options);

 private:
  void update(size_t group, Device device, Items items) override;
  std::vector<std::string> buffer_names() const override;

  std::vector<Options> options_;  // of each group
};

}  // namespace vox::optim

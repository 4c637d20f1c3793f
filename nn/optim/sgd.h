#pragma once

#include <voxgrad/nn/optim/optimizer.h>

namespace vox::optim {

/// Stochastic gradient descent as torch.optim.SGD (Sutskever et al. 2013 for the momentum):
///
///     g += weight_decay * p
///     m = momentum * m + g                    (m = g in the first step)
///     p -= lr * (nesterov ? g + momentum * m : m)
class SGD final : public Optimizer {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    double lr = 1e-3;
    double momentum = 0, weight_decay = 0;
    bool nesterov = false;  ///< needs momentum > 0
  };
  explicit SGD(std::vector<Tensor> parameters) : SGD(std::move(parameters), Options{}) {}
  explicit SGD(std::vector<Tensor> parameters, const Options& options) {
    add_group(std::move(parameters), options);
  }
  void add_group(std::vector<Tensor> parameters, const Options& options);

 private:
  void update(size_t group, Device device, Items items) override;
  std::vector<std::string> buffer_names() const override { return {"momentum"}; }
  bool needs_buffers(size_t group) const override { return options_[group].momentum != 0; }

  std::vector<Options> options_;  // of each group
};

}  // namespace vox::optim

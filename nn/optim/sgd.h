#pragma once

#include <voxgrad/nn/optim/optimizer.h>

namespace vox::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;  ///< needs momentum > 0
};

/// Stochastic gradient descent as torch.optim.SGD (Sutskever et al. 2013 for the momentum):
///
///     g += weight_decay * p
///     m = momentum * m + g                    (m = g in the first step)
///     p -= lr * (nesterov ? g + momentum * m : m)
class SGD final : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, const SGDOptions& options = {});

 private:
  void update(Device device, Items items) override;
  std::vector<std::string> buffer_names() const override { return {"momentum"}; }
  bool needs_buffers() const override { return options_.momentum != 0; }

  SGDOptions options_;
};

}  // namespace vox::optim

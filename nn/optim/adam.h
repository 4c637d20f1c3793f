#pragma once

#include <voxgrad/nn/optim/optimizer.h>

namespace vox::optim {

/// Adam (Kingma & Ba, arXiv 1412.6980) like torch.optim.Adam; weight decay is added to the gradient:
///
///     g += weight_decay * p
///     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
///     p -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
///
/// where t counts the updates of p. AdamW (Loshchilov & Hutter, arXiv 1711.05101) is like torch.optim.AdamW:
/// its `decoupled` weight decay shrinks the parameter itself, p *= 1 - lr * weight_decay, and does not enter
/// the moments.
template <bool decoupled>
class BasicAdam final : public Optimizer {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = decoupled ? 1e-2 : 0;
  };
  explicit BasicAdam(std::vector<Tensor> parameters) : BasicAdam(std::move(parameters), Options{}) {}
  explicit BasicAdam(std::vector<Tensor> parameters, const Options& options) {
    add_group(std::move(parameters), options);
  }
  void add_group(std::vector<Tensor> parameters, const Options& options);

 private:
  void update(size_t group, Device device, Items items) override;
  std::vector<std::string> buffer_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  std::vector<Options> options_;  // of each group
};

using Adam = BasicAdam<false>;
using AdamW = BasicAdam<true>;

}  // namespace vox::optim

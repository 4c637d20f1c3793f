#pragma once

#include <voxgrad/nn/optim/optimizer.h>

namespace vox::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

/// Adam (Kingma & Ba, arXiv 1412.6980) like torch.optim.Adam; weight decay is added to the gradient:
///
///     g += weight_decay * p
///     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
///     p -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
///
/// where t counts the updates of p.
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {})
      : Adam(std::move(parameters), options, false) {}

 protected:
  /// `decoupled` weight decay is that of AdamW.
  Adam(std::vector<Tensor> parameters, const AdamOptions& options, bool decoupled);

 private:
  void update(Device device, Items items) override;
  std::vector<std::string> buffer_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  AdamOptions options_;
  bool decoupled_;
};

/// AdamW (Loshchilov & Hutter, arXiv 1711.05101) like torch.optim.AdamW: weight decay shrinks the parameter
/// itself, p *= 1 - lr * weight_decay, and does not enter the moments.
class AdamW final : public Adam {
 public:
  struct Options {
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 1e-2;
  };
  explicit AdamW(std::vector<Tensor> parameters, const Options& options);
  explicit AdamW(std::vector<Tensor> parameters) : AdamW(std::move(parameters), Options{}) {}
};

}  // namespace vox::optim

#pragma once

#include <cstdint>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace exercise {

/// Adam (Kingma & Ba, arXiv 1412.6980).
class Adam {
 public:
  struct Options {
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
  };
  Adam(std::vector<vox::Tensor> parameters, const Options& options);

  /// Changes each parameter that has a gradient. With g its gradient and t the number of its updates so far,
  /// this one included:
  ///
  ///     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
  ///     p -= lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
  void step();

 private:
  struct Parameter {
    vox::Tensor p, m, v;
    int64_t t = 0;
  };
  std::vector<Parameter> parameters_;
  Options options_;
};

}  // namespace exercise

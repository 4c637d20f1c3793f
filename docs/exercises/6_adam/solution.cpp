#include <cmath>

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/6_adam/exercise.h"

namespace exercise {

Adam::Adam(std::vector<vox::Tensor> parameters, const Options& options) : options_(options) {
  for (const vox::Tensor& p : parameters) parameters_.push_back({p, vox::zeros_like(p), vox::zeros_like(p)});
}

void Adam::step() {
  const auto guard = vox::no_grad();  // an update is not part of the function that is differentiated
  const auto& [lr, beta1, beta2, eps] = options_;
  for (auto& [p, m, v, t] : parameters_) {
    const vox::Tensor g = p.grad();
    if (!g.defined()) continue;
    ++t;
    m.mul_(beta1).add_(g, 1 - beta1);
    v.mul_(beta2).add_(g * g, 1 - beta2);
    const vox::Tensor mean = m / (1 - std::pow(beta1, t)), square = v / (1 - std::pow(beta2, t));
    p.add_(mean / (vox::sqrt(square) + eps), -lr);
  }
}

}  // namespace exercise

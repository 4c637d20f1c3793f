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
  for (Parameter& parameter : parameters_) {
    // To do: the formulas of exercise.h.
    ++parameter.t;
  }
}

}  // namespace exercise

#include <cmath>

#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/7_gradcheck/exercise.h"

namespace exercise {

namespace {

using Function = std::function<vox::Tensor(const vox::Tensor&)>;

/// f at a copy of x in which element i is moved by `by`.
std::vector<double> moved(const Function& f, const vox::Tensor& x, int64_t i, double by) {
  const auto guard = vox::no_grad();
  const vox::Tensor copy = x.clone();
  copy.reshape({-1}).slice(0, i, i + 1).add_(by);
  return f(copy).to_vector<double>();
}

/// Row j of the Jacobian: the gradient of element j of y.
std::vector<double> row(const vox::Tensor& y, const vox::Tensor& x, int64_t j) {
  const vox::Tensor pick = vox::zeros(y.shape(), y.options());
  pick.reshape({-1}).slice(0, j, j + 1).fill_(1);
  return vox::grad({y}, {x}, {.grad_outputs = {pick}, .retain_graph = true})[0].to_vector<double>();
}

}  // namespace

bool gradcheck(const Function& f, const vox::Tensor& x) {
  const double eps = 1e-6;
  const vox::Tensor y = f(x);
  std::vector<std::vector<double>> jacobian;
  for (int64_t j = 0; j < y.numel(); ++j) jacobian.push_back(row(y, x, j));
  for (int64_t i = 0; i < x.numel(); ++i) {
    const std::vector<double> above = moved(f, x, i, eps), below = moved(f, x, i, -eps);
    for (size_t j = 0; j < jacobian.size(); ++j) {
      const double difference = (above[j] - below[j]) / (2 * eps);
      const double gradient = jacobian[j][static_cast<size_t>(i)];
      // Written so that a NaN is an error.
      if (!(std::abs(gradient - difference) <= 1e-5 + 1e-3 * std::abs(difference))) return false;
    }
  }
  return true;
}

}  // namespace exercise

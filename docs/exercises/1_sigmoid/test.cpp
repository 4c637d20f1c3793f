#include <voxgrad/autograd/engine.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/1_sigmoid/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect_close;
using vox::Tensor;

namespace {

Tensor leaf(const std::vector<double>& values) {
  return vox::from_vector(values, {static_cast<int64_t>(values.size())}).set_requires_grad();
}

Tensor my_sigmoid(const Tensor& x) { return exercise::Sigmoid().apply({x}); }

/// The gradient of <g, sigmoid(x)>.
Tensor gradient(const Tensor& x, const Tensor& g) {
  return vox::grad({my_sigmoid(x)}, {x}, {.grad_outputs = {g}})[0];
}

void values() {
  const Tensor x = leaf({-2, 0, 3});
  expect_close("sigmoid", my_sigmoid(x), vox::sigmoid(x.detach()));
}

void slope_at_zero() { expect_close("the gradient at 0", gradient(leaf({0}), leaf({1})), leaf({0.25})); }

void incoming_gradient() {
  const Tensor g = leaf({1, -2, 10}).detach();
  expect_close("the gradient at 0 for incoming gradients 1, -2 and 10", gradient(leaf({0, 0, 0}), g),
               0.25 * g);
}

void other_points() {
  const Tensor x = leaf({-3, -1, 0.5, 2}), s = vox::sigmoid(x.detach());
  expect_close("the gradient at -3, -1, 0.5 and 2", gradient(x, vox::ones_like(s)), s * (1 - s));
}

void far_from_zero() {
  expect_close("the gradient at -800 and 800", gradient(leaf({-800, 800}), leaf({1, 1})), leaf({0, 0}));
}

void second_derivative() {
  exercise::expect_gradients([](const std::vector<Tensor>& inputs) { return my_sigmoid(inputs[0]); },
                             {leaf({-2, 0.3, 1})});
}

}  // namespace

int main(int argc, char** argv) {
  return exercise::run(
      argc, argv,
      {{"forward gives 1 / (1 + exp(-x))", values},
       {"the slope at 0", slope_at_zero},
       {"the incoming gradient is a factor", incoming_gradient},
       {"the slope at other points", other_points},
       {"far from zero the gradient is 0, not NaN", far_from_zero},
       {"gradcheck and gradgradcheck: the gradient can be differentiated", second_derivative}});
}

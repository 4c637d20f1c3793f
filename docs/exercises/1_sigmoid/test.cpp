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

STEP("forward gives 1 / (1 + exp(-x))") {
  const Tensor x = leaf({-2, 0, 3});
  expect_close("sigmoid", my_sigmoid(x), vox::sigmoid(x.detach()));
}

STEP("the slope at 0") { expect_close("the gradient at 0", gradient(leaf({0}), leaf({1})), leaf({0.25})); }

STEP("the incoming gradient is a factor") {
  const Tensor g = leaf({1, -2, 10}).detach();
  expect_close("the gradient at 0 for incoming gradients 1, -2 and 10", gradient(leaf({0, 0, 0}), g),
               0.25 * g);
}

STEP("the slope at other points") {
  const Tensor x = leaf({-3, -1, 0.5, 2}), s = vox::sigmoid(x.detach());
  expect_close("the gradient at -3, -1, 0.5 and 2", gradient(x, vox::ones_like(s)), s * (1 - s));
}

STEP("far from zero the gradient is 0, not NaN") {
  expect_close("the gradient at -800 and 800", gradient(leaf({-800, 800}), leaf({1, 1})), leaf({0, 0}));
}

STEP("gradcheck and gradgradcheck: the gradient can be differentiated") {
  exercise::expect_gradients([](const std::vector<Tensor>& inputs) { return my_sigmoid(inputs[0]); },
                             {leaf({-2, 0.3, 1})});
}

}  // namespace

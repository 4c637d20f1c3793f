#include <limits>

#include <voxgrad/autograd/function.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/reduce.h>

#include "docs/exercises/7_gradcheck/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect;
using vox::Tensor;

namespace {

Tensor point() { return vox::from_vector<double>({0.5, -1, 2, 0.3}, {2, 2}).set_requires_grad(); }

Tensor matrix(const std::vector<double>& values) { return vox::from_vector(values, {2, 2}); }

/// x^3, with the gradient 3 x^2 * g * factor + g * shift. The right one has factor 1 and shift 0.
struct Cube : vox::Function<Cube> {
  static constexpr const char* name = "cube";
  Tensor factor = matrix({1, 1, 1, 1}), shift = matrix({0, 0, 0, 0});
  Tensor forward(vox::FunctionContext& context, const std::vector<Tensor>& inputs) {
    context.save_for_backward(inputs);
    return inputs[0] * inputs[0] * inputs[0];
  }
  std::vector<Tensor> backward(vox::FunctionContext& context, const Tensor& g) {
    const Tensor x = context.saved()[0];
    return {3 * x * x * g * factor + g * shift};
  }
};

auto cube(const Tensor& factor, const Tensor& shift) {
  return [=](const Tensor& x) {
    Cube f;
    f.factor = factor, f.shift = shift;
    return f.apply({x});
  };
}
const auto right_factor = matrix({1, 1, 1, 1}), no_shift = matrix({0, 0, 0, 0});

STEP("right gradients are accepted") {
  expect(exercise::gradcheck(cube(right_factor, no_shift), point()), "the right gradient of x^3 was refused");
  expect(exercise::gradcheck([](const Tensor& x) { return vox::exp(x).sum(); }, point()),
         "the gradient of exp(x).sum() was refused");
  expect(exercise::gradcheck([](const Tensor& x) { return vox::matmul(x, x); }, point()),
         "the gradient of matmul(x, x) was refused");
}

STEP("a wrong factor is found") {
  expect(!exercise::gradcheck(cube(2 * right_factor, no_shift), point()),
         "a gradient of x^3 that is twice too large was accepted");
}

STEP("an error of 1 % in one element is found") {
  expect(!exercise::gradcheck(cube(matrix({1, 1, 1, 1.01}), no_shift), point()),
         "a gradient of x^3 that is 1 % too large at the last element was accepted");
}

/// (x, -x), with a gradient that is twice too large for both. In a sum over the outputs both vanish.
STEP("errors that cancel in the sum of the outputs are found") {
  const auto twice = cube(2 * right_factor, no_shift);
  expect(!exercise::gradcheck(
             [&](const Tensor& x) {
               return twice(x) * matrix({1, -1, 1, -1});
             },
             point()),
         "a wrong gradient was accepted");
  const auto f = [&](const Tensor& x) {
    const Tensor y = twice(x).unsqueeze(0);
    return y * vox::from_vector<double>({1, -1}, {2, 1, 1});
  };
  expect(!exercise::gradcheck(f, point()),
         "the output (y, -y) hides a wrong gradient of y from their sum: check ",
         "each element of the output alone");
}

STEP("a NaN is found") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect(!exercise::gradcheck(cube(right_factor, matrix({0, nan, 0, 0})), point()),
         "a gradient with a NaN was accepted");
}

STEP("x and its gradient stay as they were") {
  Tensor x = point();
  x.set_grad(vox::full_like(x, 7));
  const std::vector<double> before = x.to_vector<double>();
  expect(!exercise::gradcheck(cube(2 * right_factor, no_shift), x), "a wrong gradient was accepted");
  expect(exercise::gradcheck(cube(right_factor, no_shift), x), "the right gradient was refused");
  expect(x.to_vector<double>() == before, "gradcheck changed x");
  exercise::expect_close("x.grad() after gradcheck", x.grad(), vox::full_like(x, 7));
}

}  // namespace

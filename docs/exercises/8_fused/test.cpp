#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>

#include <voxgrad/autograd/tape.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/8_fused/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect_close;
using vox::Tensor;

namespace {

Tensor numbers(const std::vector<float>& values) {
  return vox::from_vector(values, {static_cast<int64_t>(values.size())});
}

Tensor composed(const Tensor& x, const Tensor& scale, const Tensor& shift) {
  return vox::relu(scale.unsqueeze(1) * x + shift.unsqueeze(1));
}

Tensor row() { return numbers({-3, -1, 0, 0.5, 2, 7}); }

STEP("forward_row") {
  Tensor y = vox::full({6}, std::numeric_limits<float>::quiet_NaN());
  exercise::forward_row(row().data<float>(), 2, 1, y.mutable_data<float>(), 6);
  expect_close("relu(2x + 1) at -3, -1, 0, 0.5, 2, 7", y, numbers({0, 0, 1, 2, 5, 15}), 0);
}

STEP("forward_row may write where it reads") {
  Tensor x = row();
  exercise::forward_row(x.data<float>(), 2, 1, x.mutable_data<float>(), 6);
  expect_close("relu(2x + 1), written over x", x, numbers({0, 0, 1, 2, 5, 15}), 0);
}

STEP("backward_row") {
  const Tensor grad_y = numbers({100, 200, 1, 2, 3, -4});
  Tensor grad_x = vox::full({6}, std::numeric_limits<float>::quiet_NaN());
  const exercise::ParameterGradients sums = exercise::backward_row(
      row().data<float>(), 2, 1, grad_y.data<float>(), grad_x.mutable_data<float>(), 6);
  expect_close("the gradient of x", grad_x, numbers({0, 0, 2, 4, 6, -8}), 0);
  expect_close("the gradient of scale", numbers({sums.scale}), numbers({1 + 6 - 28}), 0);
  expect_close("the gradient of shift", numbers({sums.shift}), numbers({1 + 2 + 3 - 4}), 0);
}

STEP("values and gradients equal those of three ops") {
  const Tensor g = vox::randn({5, 1000});
  std::vector<Tensor> a = {vox::randn({5, 1000}), vox::randn({5}), vox::randn({5})}, b;
  for (Tensor& t : a) {
    b.push_back(t.clone().set_requires_grad());
    t.set_requires_grad();
  }
  Tensor fused = exercise::scale_shift_relu(a[0], a[1], a[2]), ops = composed(b[0], b[1], b[2]);
  fused.backward(g);
  ops.backward(g);
  expect_close("scale_shift_relu", fused.detach(), ops.detach(), 1e-6);
  expect_close("the gradient of x", a[0].grad(), b[0].grad(), 1e-6);
  expect_close("the gradient of scale", a[1].grad(), b[1].grad(), 1e-4);
  expect_close("the gradient of shift", a[2].grad(), b[2].grad(), 1e-4);
}

STEP("a long sum keeps its small terms") {
  // f32 has 24 significant bits: 2^24 + 1 rounds to 2^24.
  const Tensor x = vox::ones({4097}), grad_y = vox::ones({4097});
  grad_y.slice(0, 0, 1).fill_(1 << 24);
  Tensor grad_x = vox::empty({4097});
  const exercise::ParameterGradients sums =
      exercise::backward_row(x.data<float>(), 1, 0, grad_y.data<float>(), grad_x.mutable_data<float>(), 4097);
  for (const float sum : {sums.scale, sums.shift}) {
    exercise::expect(sum == (1 << 24) + 4096, "2^24 + 4096 times 1 is 2^24 + 4096 = 16781312, got ",
                     static_cast<int64_t>(sum), ": add up in double");
  }
}

/// The best time of several for forward and backward.
double milliseconds(Tensor (*op)(const Tensor&, const Tensor&, const Tensor&), std::vector<Tensor> inputs,
                    const Tensor& g) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 5; ++run) {
    for (Tensor& t : inputs) t.zero_grad();
    const auto start = Clock::now();
    op(inputs[0], inputs[1], inputs[2]).backward(g);
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

void print_comparison() {
  std::vector<Tensor> inputs = {vox::randn({64, 65536}), vox::randn({64}), vox::randn({64})};
  for (Tensor& t : inputs) t.set_requires_grad();
  const Tensor g = vox::randn({64, 65536});
  std::cout << "\nForward and backward for x of shape (64,65536):\n  three ops "
            << milliseconds(composed, inputs, g) << " ms\n  fused     "
            << milliseconds(exercise::scale_shift_relu, inputs, g) << " ms\n\nTheir tapes:\n\n"
            << vox::tape(composed(inputs[0], inputs[1], inputs[2])) << "\n"
            << vox::tape(exercise::scale_shift_relu(inputs[0], inputs[1], inputs[2]));
}
const bool is_listed = exercise::list_afterwards(print_comparison);

}  // namespace

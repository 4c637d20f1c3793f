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

double microseconds(decltype(exercise::backward_row)* row, const Tensor& x, const Tensor& g, Tensor& grad_x) {
  const auto start = std::chrono::steady_clock::now();
  row(x.data<float>(), 1, 0, g.data<float>(), grad_x.mutable_data<float>(), x.numel());
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

/// Both run in turn, in the cache and on one thread, and the best of many times counts. So neither memory nor
/// other programs decide.
STEP("backward_row is no slower than a loop for each op") {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const Tensor x = vox::randn({65536}), g = vox::randn({65536});
  Tensor grad_x = vox::empty({65536});
  double separate = std::numeric_limits<double>::infinity(), fused = separate;
  for (int run = 0; run < 200; ++run) {
    separate = std::min(separate, microseconds(exercise::backward_row_by_loops, x, g, grad_x));
    fused = std::min(fused, microseconds(exercise::backward_row, x, g, grad_x));
  }
  std::cout << "      65536 elements: a loop for each op " << separate << " us, backward_row " << fused
            << " us\n";
  exercise::expect(fused < 1.3 * separate, "backward_row takes ", fused / separate,
                   " times as long as separate loops; see hint 2");
#endif
}

void print_tapes() {
  std::vector<Tensor> inputs = {vox::randn({2, 3}), vox::randn({2}), vox::randn({2})};
  for (Tensor& t : inputs) t.set_requires_grad();
  std::cout << "\nTheir tapes:\n\n"
            << vox::tape(composed(inputs[0], inputs[1], inputs[2])) << "\n"
            << vox::tape(exercise::scale_shift_relu(inputs[0], inputs[1], inputs[2]));
}
const bool is_listed = exercise::list_afterwards(print_tapes);

}  // namespace

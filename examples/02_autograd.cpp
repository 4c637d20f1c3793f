// 02: autograd. You learn what the tape computes: a gradient by hand, by the tape and by differences. Then
// you fit one weight by gradient descent.

#include <cmath>
#include <iostream>

#include <voxgrad/voxgrad.h>

int main() {
  // f(w) = sum_i (w * x_i - y_i)^2
  const std::vector<double> x = {1, 2, 3}, y = {2, 4, 7};
  const double w = 1.5;

  // By hand: the chain rule gives f'(w) = sum_i 2 (w x_i - y_i) x_i.
  double by_hand = 0;
  for (size_t i = 0; i < x.size(); ++i) by_hand += 2 * (w * x[i] - y[i]) * x[i];

  // By the tape: every op that sees a tensor which requires grad leaves a node on the tape.
  const vox::Tensor xs = vox::from_vector(x, {3}), ys = vox::from_vector(y, {3});
  vox::Tensor weight = vox::from_vector<double>({w}, {1}).set_requires_grad(true);
  const vox::Tensor error = weight * xs - ys;
  const vox::Tensor loss = (error * error).sum();

  // Every edge of the tape leads to a lower number. So backward takes the node with the highest number that
  // has a gradient, runs it, and sends its results on, until no node is left.
  std::cout << "The tape of the loss, in the order of backward:\n" << vox::tape(loss) << "\n";
  vox::Tensor(loss).backward();
  const double by_tape = weight.grad().item<double>();

  // By differences: (f(w + h) - f(w - h)) / 2h.
  const auto f = [&](double at) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (at * x[i] - y[i]) * (at * x[i] - y[i]);
    return sum;
  };
  const double h = 1e-5, by_differences = (f(w + h) - f(w - h)) / (2 * h);
  std::cout << "f'(" << w << ") by hand " << by_hand << ", by tape " << by_tape << ", by differences "
            << by_differences << "\n";

  // Gradient descent: move against the gradient. In-place writes are not recorded, so they need no_grad().
  for (int step = 0; step < 100; ++step) {
    weight.zero_grad();
    const vox::Tensor residual = weight * xs - ys;
    (residual * residual).sum().backward();
    const auto guard = vox::no_grad();
    weight.add_(weight.grad(), -0.01);
  }
  const double fitted = weight.item<double>(), exact = 31.0 / 14.0;  // sum x_i y_i / sum x_i^2
  std::cout << "least squares by descent " << fitted << ", exact " << exact << "\n";

  const bool agree =
      by_hand == by_tape && std::abs(by_hand - by_differences) < 1e-6 && std::abs(fitted - exact) < 1e-6;
  return agree ? 0 : 1;
}

#pragma once

#include <vector>

#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

namespace exercise {

/// A network of one hidden layer that tells points of two classes in the plane apart.
struct Network {
  explicit Network(int64_t hidden)
      : w1(vox::randn({2, hidden}, {.dtype = vox::f64}).set_requires_grad()),
        b1(vox::zeros({hidden}, {.dtype = vox::f64}).set_requires_grad()),
        w2(vox::randn({hidden, 1}, {.dtype = vox::f64}).set_requires_grad()),
        b2(vox::zeros({1}, {.dtype = vox::f64}).set_requires_grad()) {}

  /// For x of shape (N, 2), the probability of class 1 of each point, of shape (N, 1):
  ///
  ///     sigmoid(tanh(x w1 + b1) w2 + b2)
  ///
  /// The sigmoid is yours, of exercise 1.
  vox::Tensor operator()(const vox::Tensor& x) const;

  std::vector<vox::Tensor> parameters() const { return {w1, b1, w2, b2}; }

  vox::Tensor w1, b1, w2, b2;
};

/// Trains the network on points x of shape (N, 2) with classes y of shape (N, 1), 0 or 1. Each step takes the
/// loss, the mean of (network(x) - y)^2; gradients by exercise::backward, your engine of exercise 3; and a
/// step of your exercise::Adam of exercise 6 with lr = 0.05. Returns the loss of each step.
std::vector<double> train(const Network& network, const vox::Tensor& x, const vox::Tensor& y, int steps);

}  // namespace exercise

#include <cmath>

#include <voxgrad/autograd/meta.h>
#include <voxgrad/nn/optim/adam.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/shaping.h>

#include "docs/exercises/1_sigmoid/exercise.h"
#include "docs/exercises/3_engine/exercise.h"
#include "docs/exercises/6_adam/exercise.h"
#include "docs/exercises/9_moons/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect;
using exercise::expect_close;
using exercise::Network;
using vox::Tensor;

namespace {

struct Points {
  Tensor x, y;  // (N, 2) and (N, 1)
};

/// Two half circles that lie in each other, n points of each, with some noise.
Points moons(int64_t n) {
  constexpr vox::TensorOptions f64{.dtype = vox::f64};
  const Tensor angle = vox::rand({n, 1}, f64) * M_PI;
  const Tensor upper = vox::cat({vox::cos(angle), vox::sin(angle)}, 1);
  const Tensor lower = vox::cat({1 - vox::cos(angle), 0.5 - vox::sin(angle)}, 1);
  return {vox::cat({upper, lower}, 0) + 0.1 * vox::randn({2 * n, 2}, f64),
          vox::cat({vox::zeros({n, 1}, f64), vox::ones({n, 1}, f64)}, 0)};
}

/// The network by the library's ops.
Tensor expected_output(const Network& n, const Tensor& x) {
  return vox::sigmoid(vox::matmul(vox::tanh(vox::matmul(x, n.w1) + n.b1), n.w2) + n.b2);
}

/// Training by the library.
std::vector<double> expected_losses(const Network& network, const Points& points, int steps) {
  vox::optim::Adam adam(network.parameters(), {.lr = 0.05});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    adam.zero_grad();
    const Tensor error = expected_output(network, points.x) - points.y, loss = (error * error).mean();
    loss.backward();
    adam.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

STEP("your exercises 1, 3 and 6 are solved") {
  const Tensor x = vox::zeros({1}, {.dtype = vox::f64}).set_requires_grad();
  exercise::backward(exercise::Sigmoid().apply({x}), vox::ones_like(x));
  expect(x.grad().defined(),
         "there is no gradient: solve exercise 3 first, in 3_engine.cpp beside this file");
  expect(x.grad().item<double>() == 0.25, "the slope of the sigmoid at 0 is ", x.grad().item<double>(),
         ": solve exercise 1 first, in 1_sigmoid.cpp beside this file");
  exercise::Adam({x}, {.lr = 1}).step();
  expect(x.item<double>() < 0, "Adam moves nothing: solve exercise 6 first, in 6_adam.cpp beside this file");
}

STEP("the network's output") {
  vox::manual_seed(1);
  const Network network(8);
  const Tensor x = moons(5).x;
  expect_close("network(x)", network(x).detach(), expected_output(network, x).detach());
}

STEP("its sigmoid is the one of exercise 1") {
  const Network network(8);
  const auto output = network(moons(5).x);
  expect(output.requires_grad(), "the output does not require grad");
  expect(std::string(output.impl()->autograd->node->name()) == "exercise_sigmoid", "the last op is ",
         output.impl()->autograd->node->name(), ", not the Sigmoid of exercise 1");
}

STEP("each step gives a loss, and the first one is the mean square") {
  vox::manual_seed(2);
  const Network network(8);
  const Points points = moons(20);
  const Tensor error = expected_output(network, points.x) - points.y;
  const std::vector<double> losses = exercise::train(network, points.x, points.y, 3);
  expect(losses.size() == 3, "train returned ", losses.size(), " losses for 3 steps");
  expect_close("the first loss", vox::full({}, losses[0], {.dtype = vox::f64}),
               (error * error).mean().detach());
}

STEP("20 steps equal those of the library, without its engine") {
  vox::manual_seed(3);
  const Network mine(8), theirs(8);
  for (size_t i = 0; i < 4; ++i) theirs.parameters()[i].detach().copy_(mine.parameters()[i].detach());
  const Points points = moons(20);
  std::vector<double> losses;
  exercise::without_engine([&] { losses = exercise::train(mine, points.x, points.y, 20); });
  expect(losses.size() == 20, "train returned ", losses.size(), " losses for 20 steps");
  const std::vector<double> expected = expected_losses(theirs, points, 20);
  for (size_t i = 0; i < losses.size(); ++i)
    expect(std::abs(losses[i] - expected[i]) < 1e-9, "the loss of step ", i, " is ", losses[i],
           " instead of ", expected[i], i == 2 ? ": does every step begin with zero_grad()?" : "");
}

STEP("it learns the moons") {
  vox::manual_seed(4);
  const Network network(16);
  const Points points = moons(100), others = moons(500);
  exercise::train(network, points.x, points.y, 300);
  const Tensor is_one = vox::gt(network(others.x).detach(), 0.5).to(vox::f64);
  const double right = vox::eq(is_one, others.y).to(vox::f64).mean().item<double>();
  expect(right > 0.97, "after 300 steps, ", 100 * right,
         " % of 1000 new points are told right; allowed is 97");
}

}  // namespace

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/optim/adam.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/6_adam/exercise.h"
#include "docs/exercises/steps.h"

using exercise::Adam;
using exercise::expect;
using exercise::expect_close;
using vox::Tensor;

namespace {

Tensor leaf(const std::vector<double>& values) {
  return vox::from_vector(values, {static_cast<int64_t>(values.size())}).set_requires_grad();
}

Tensor minimum() { return vox::from_vector<double>({3, -1, 0.5}, {3}); }

/// Computes the gradient of a function with its minimum at minimum().
void compute_gradient(Tensor p) {
  p.zero_grad();
  const Tensor error = p - minimum();
  (error * error).sum().backward();
}

STEP("the first step has length lr") {
  Tensor p = leaf({1, 1, 1});
  p.set_grad(vox::from_vector<double>({5, -0.01, 0}, {3}));
  Adam adam({p}, {.lr = 0.1});
  adam.step();
  expect_close("p = 1 after one step of lr 0.1 for the gradients 5, -0.01 and 0", p.detach(),
               vox::from_vector<double>({0.9, 1.1, 1}, {3}), 1e-6);
}

STEP("20 steps equal those of vox::optim::Adam") {
  const Tensor p = leaf({1, 1, 1}), q = leaf({1, 1, 1});
  Adam adam({p}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4});
  vox::optim::Adam expected({q}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4});
  for (int step = 0; step < 20; ++step) {
    compute_gradient(p);
    adam.step();
    compute_gradient(q);
    expected.step();
  }
  expect_close("p after 20 steps", p.detach(), q.detach(), 1e-10);
}

STEP("a parameter without a gradient keeps value, moments and t") {
  Tensor p = leaf({1}), q = leaf({1});
  Adam adam({p, q}, {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    p.set_grad(vox::full_like(p, 2));
    adam.step();
  }
  expect(q.item<double>() == 1, "a parameter without a gradient changed from 1 to ", q.item<double>());
  q.set_grad(vox::full_like(q, 2));
  adam.step();
  expect_close("its first update, after 3 steps of the other one", q.detach(), vox::full_like(q, 0.9), 1e-6);
}

STEP("the update is in place") {
  const Tensor p = leaf({1}), handle = p;
  const double* memory = p.data<double>();
  Tensor(p).set_grad(vox::ones_like(p));
  Adam({p}, {.lr = 0.1}).step();
  expect(handle.item<double>() < 1 && handle.data<double>() == memory,
         "another handle on the parameter still has the value ", handle.item<double>(),
         ": write into the parameter's memory");
  expect(p.grad().item<double>() == 1, "step() changed p.grad() from 1 to ", p.grad().item<double>());
}

STEP("the update is not on the tape") {
  const Tensor p = leaf({1});
  Tensor(p).set_grad(vox::ones_like(p));
  Adam({p}, {.lr = 0.1}).step();
  expect(p.item<double>() != 1, "the parameter did not change");
  expect(p.is_leaf() && p.requires_grad(), "after step() the parameter is no leaf that requires grad");
  expect(vox::grad_enabled(), "after step() grad mode is off");
}

STEP("it finds a minimum") {
  const Tensor p = leaf({0, 0, 0});
  Adam adam({p}, {.lr = 0.05});
  for (int step = 0; step < 2000; ++step) {
    compute_gradient(p);
    adam.step();
  }
  expect_close("p after 2000 steps", p.detach(), minimum(), 1e-2);
}

}  // namespace

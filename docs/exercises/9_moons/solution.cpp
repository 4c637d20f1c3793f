#include <voxgrad/ops/matmul.h>

#include "docs/exercises/1_sigmoid/exercise.h"
#include "docs/exercises/3_engine/exercise.h"
#include "docs/exercises/6_adam/exercise.h"
#include "docs/exercises/9_moons/exercise.h"

namespace exercise {

vox::Tensor Network::operator()(const vox::Tensor& x) const {
  const vox::Tensor hidden = vox::tanh(vox::matmul(x, w1) + b1);
  return Sigmoid().apply({vox::matmul(hidden, w2) + b2});
}

std::vector<double> train(const Network& network, const vox::Tensor& x, const vox::Tensor& y, int steps) {
  std::vector<double> losses;
  Adam adam(network.parameters(), {.lr = 0.05});
  for (int step = 0; step < steps; ++step) {
    for (vox::Tensor p : network.parameters()) p.zero_grad();
    const vox::Tensor error = network(x) - y, loss = (error * error).mean();
    backward(loss, vox::ones_like(loss));
    adam.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

}  // namespace exercise

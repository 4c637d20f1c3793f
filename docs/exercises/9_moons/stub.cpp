#include <voxgrad/ops/matmul.h>

#include "docs/exercises/1_sigmoid/exercise.h"
#include "docs/exercises/3_engine/exercise.h"
#include "docs/exercises/6_adam/exercise.h"
#include "docs/exercises/9_moons/exercise.h"

namespace exercise {

vox::Tensor Network::operator()(const vox::Tensor& x) const {
  // To do, with your Sigmoid.
  return vox::zeros({x.size(0), 1}, x.options());
}

std::vector<double> train(const Network& network, const vox::Tensor& x, const vox::Tensor& y, int steps) {
  std::vector<double> losses;
  // To do, with your backward and your Adam.
  return losses;
}

}  // namespace exercise

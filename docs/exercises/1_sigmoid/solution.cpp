#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/1_sigmoid/exercise.h"

namespace exercise {

vox::Tensor Sigmoid::forward(vox::FunctionContext& context, const std::vector<vox::Tensor>& inputs) {
  const vox::Tensor y = 1 / (1 + vox::exp(-inputs[0]));
  context.save_for_backward({y});
  return y;
}

std::vector<vox::Tensor> Sigmoid::backward(vox::FunctionContext& context, const vox::Tensor& grad_output) {
  const vox::Tensor y = context.saved()[0];
  return {grad_output * y * (1 - y)};
}

}  // namespace exercise

#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/1_sigmoid/exercise.h"

namespace exercise {

vox::Tensor Sigmoid::forward(vox::FunctionContext& context, const std::vector<vox::Tensor>& inputs) {
  const vox::Tensor y = 1 / (1 + vox::exp(-inputs[0]));
  // To do: keep for backward what it needs, with context.save_for_backward({...}).
  return y;
}

std::vector<vox::Tensor> Sigmoid::backward(vox::FunctionContext& context, const vox::Tensor& grad_output) {
  // To do: the gradient of the input. context.saved() returns what forward kept.
  return {0 * grad_output};
}

}  // namespace exercise

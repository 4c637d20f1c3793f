#pragma once

#include <voxgrad/autograd/function.h>

namespace exercise {

/// sigmoid(x) = 1 / (1 + exp(-x)), with its own gradient.
struct Sigmoid : vox::Function<Sigmoid> {
  static constexpr const char* name = "exercise_sigmoid";
  vox::Tensor forward(vox::FunctionContext& context, const std::vector<vox::Tensor>& inputs);
  std::vector<vox::Tensor> backward(vox::FunctionContext& context, const vox::Tensor& grad_output);
};

}  // namespace exercise

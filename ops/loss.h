#pragma once

#include <voxgrad/core/tensor.h>

namespace vox {

enum class Reduction { none, mean, sum };

/// (input - target)^2, elementwise or reduced. Equal shapes, no broadcasting.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// -log softmax(input)[target]: input (N, C, ...), target i64 (N, ...) with classes in [0, C).
Tensor cross_entropy(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace vox

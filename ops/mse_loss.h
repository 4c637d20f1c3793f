#pragma once

#include <voxgrad/core/tensor.h>

namespace vox {

/// What a loss does with its elements: keep them, their mean, or their sum.
enum class Reduction { none, mean, sum };

/// (input - target)^2. Equal shapes, no broadcasting; one floating dtype, one device. Rank 0 unless
/// `reduction` is none. Gradients reach input and target.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|, likewise. The gradient is 0 where they are equal.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace vox

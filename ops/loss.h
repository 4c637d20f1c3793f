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

/// -log softmax(input)[target]. `input` (N, C, ...) of floating dtype holds scores; `target` (N, ...) i64
/// holds classes in [0, C). Before the reduction the loss has target's shape; the mean is over all of it.
///
/// On the CPU a class out of range throws ValueError. On CUDA, reading the values would stall the stream.
/// There a class out of range makes its loss, and so the mean or sum, NaN, and its scores get no gradient;
/// nothing else is affected. The gradient is softmax(input) - one_hot(target), times that of the loss.
Tensor cross_entropy(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace vox

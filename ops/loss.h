#pragma once

#include <voxgrad/core/tensor.h>

namespace vox {

/// What a loss does with its elements: keep them, their mean, or their sum.
enum class Reduction { none, mean, sum };

/// (input - target)^2. Equal shapes, no broadcasting; one floating dtype, one device. Rank 0 unless
/// `reduction` is none. Gradients reach input and target.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|, likewise; its gradient where they are equal is 0.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

/// -log softmax(input)[target]: `input` (N, C, ...) of floating dtype holds scores, `target` (N, ...) i64
/// holds classes in [0, C). The loss has target's shape before it is reduced; the mean is over all of it.
///
/// On the CPU a class out of range throws ValueError. On CUDA, where looking at the values would stall the
/// stream, its loss, and so the mean or sum, is NaN, and its scores get no gradient; nothing else is touched.
/// Gradient: softmax(input) - one_hot(target), times that of the loss.
Tensor cross_entropy(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace vox

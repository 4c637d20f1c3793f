#pragma once

#include <voxgrad/ops/mse_loss.h>

// What losses share. It is defined in mse_loss.cpp, except reduced(), in loss.cpp.

namespace vox::detail {

/// The dtype of a loss of `input`: f32 under autocast.
DType loss_dtype(const Tensor& input);

/// Throws unless a and b have one dtype, or autocast mixes theirs.
void check_loss_dtypes(const char* function, const Tensor& a, const Tensor& b);
/// Throws unless both have one floating dtype, one device and one shape.
void check_loss_pair(const char* function, const char* a_name, const Tensor& a, const char* b_name,
                     const Tensor& b);

/// input - target in opmath(dtype), checked.
Tensor loss_difference(const char* function, const Tensor& input, const Tensor& target);
/// The losses of elements, their mean or their sum.
Tensor reduced(const Tensor& loss, Reduction reduction);

}  // namespace vox::detail

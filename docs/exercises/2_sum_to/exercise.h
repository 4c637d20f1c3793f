#pragma once

#include <voxgrad/core/tensor.h>

namespace exercise {

/// Sums the dimensions of x that broadcasting from `shape` to x.shape() repeats. The result has shape
/// `shape`. The caller promises that `shape` broadcasts to x.shape().
vox::Tensor sum_to(const vox::Tensor& x, const vox::Shape& shape);

}  // namespace exercise

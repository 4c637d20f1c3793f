#pragma once

#include <ostream>

#include <voxgrad/core/tensor.h>

namespace vox {

/// Writes a tensor for people to read: nested brackets, aligned columns, 4 decimals, then dtype, device and
/// requires_grad where they are not the default. Above 1000 elements it shows only the first and last 3 of
/// each dimension, and the shape. Elements of a CUDA tensor are copied to the host first.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace vox

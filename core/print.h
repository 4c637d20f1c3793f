#pragma once

#include <ostream>

#include <voxgrad/core/tensor.h>

namespace vox {

/// Writes a tensor for people to read: nested brackets, aligned columns, 4 decimals, and what is
/// not the default (dtype, device, requires_grad) at the end. Above 1000 elements only the first and last 3
/// of each dimension are shown, and the shape is named. Elements of a CUDA tensor are copied to the host
/// first.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace vox

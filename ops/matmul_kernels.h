#pragma once

#include <voxgrad/core/tensor.h>

// The private side of matmul. a is (batch..., n, k), b (batch..., k, m) and the dense y (batch..., n, m),
// with equal batch dimensions, any strides in a and b (0 where an operand is used for many batches), and one
// floating dtype.

namespace vox {
namespace cpu {
void matmul(const Tensor& a, const Tensor& b, Tensor& y);
}
namespace cuda {
void matmul(const Tensor& a, const Tensor& b, Tensor& y);
}
}  // namespace vox

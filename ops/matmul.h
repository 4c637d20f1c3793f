#pragma once

#include <voxgrad/core/tensor.h>

namespace vox {

/// Matrix product with torch.matmul's rules: (n,k)x(k,m), vectors as (1,k) or (k,1) that are dropped again,
/// leading dimensions broadcast as batches. Floating dtypes. Gradients: g b^T and a^T g, summed to shape.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace vox

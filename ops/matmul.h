#pragma once

#include <voxgrad/core/tensor.h>

namespace vox {

/// Matrix product with torch.matmul's rules: (n,k) x (k,m) gives (n,m). A vector a counts as (1,k), a vector
/// b as (k,1), and that 1 is dropped from the result. So two vectors give their dot product, of rank 0.
/// Dimensions before the last two are batches and broadcast. k = 0 gives zeros.
///
/// Both operands have the same floating dtype and the same device. The shapes alone fix the order in which
/// each element's k products are added. Throws ShapeError for rank 0, for two different k, or for batches
/// that do not broadcast. Gradients: g b^T and a^T g, summed over broadcast batches.
Tensor matmul(const Tensor& a, const Tensor& b);
/// matmul of two batches of matrices of one size: (b,n,k) x (b,k,m) gives (b,n,m).
Tensor bmm(const Tensor& a, const Tensor& b);

}  // namespace vox

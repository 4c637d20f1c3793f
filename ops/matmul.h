#pragma once

#include <voxgrad/core/tensor.h>

namespace vox {

/// Matrix product with torch.matmul's rules: (n,k) x (k,m) gives (n,m). A vector a counts as (1,k), a vector
/// b as (k,1), and that 1 is dropped from the result; so two vectors give their dot product, of rank 0.
/// Dimensions before the last two are batches and broadcast. k = 0 gives zeros.
///
/// Floating dtypes, equal ones; one device. Each element's k products are added in an order that the shapes
/// alone fix. Throws ShapeError for rank 0, for two different k, or for batches that do not broadcast.
/// Gradients: g b^T and a^T g, summed over broadcast batches.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace vox

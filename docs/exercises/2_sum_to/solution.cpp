#include "docs/exercises/2_sum_to/exercise.h"

namespace exercise {

vox::Tensor sum_to(const vox::Tensor& x, const vox::Shape& shape) {
  const int64_t added = x.rank() - shape.rank();  // broadcasting aligns the last dimensions
  vox::Shape repeated;
  for (int64_t dim = 0; dim < x.rank(); ++dim) {
    if (dim < added || (shape[dim - added] == 1 && x.size(dim) != 1)) repeated.push_back(dim);
  }
  // sum() takes an empty list of dimensions for all of them.
  return repeated.empty() ? x : x.sum(repeated, /*keepdim=*/true).reshape(shape);
}

}  // namespace exercise

#include "docs/exercises/2_sum_to/exercise.h"

namespace exercise {

vox::Tensor sum_to(const vox::Tensor& x, const vox::Shape& shape) {
  // To do.
  return x;
}

}  // namespace exercise

#include "docs/exercises/11_product/exercise.h"

namespace exercise {

void conv_transpose3d(const float* input, const float* weight, float* output) {
  // To do: by_definition (ladder/layer.cpp) in another order.
  for (int row = 0; row < rows; ++row)
    for (int cell = 0; cell < cells; ++cell) output[output_index(row, cell)] = 0;
}

}  // namespace exercise

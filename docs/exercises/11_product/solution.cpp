#include <algorithm>

#include "docs/exercises/11_product/exercise.h"

namespace exercise {

void conv_transpose3d(const float* input, const float* weight, float* output) {
  constexpr int at_once = 4;  // rows that share each load of an input
  Floats sums(at_once * cells);
  float *s0 = sums.data(), *s1 = s0 + cells, *s2 = s1 + cells, *s3 = s2 + cells;
  for (int row = 0; row < rows; row += at_once) {
    std::fill(sums.begin(), sums.end(), 0.f);
    for (int c = 0; c < in_channels; ++c) {
      const float *x = input + c * cells, *w = weight + c * rows + row;
      const float w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
      for (int cell = 0; cell < cells; ++cell) {  // neighbours in memory: the compiler uses vectors
        s0[cell] += w0 * x[cell];
        s1[cell] += w1 * x[cell];
        s2[cell] += w2 * x[cell];
        s3[cell] += w3 * x[cell];
      }
    }
    for (int r = 0; r < at_once; ++r)
      for (int cell = 0; cell < cells; ++cell)
        output[output_index(row + r, cell)] = sums[static_cast<size_t>(r * cells + cell)];
  }
}

}  // namespace exercise

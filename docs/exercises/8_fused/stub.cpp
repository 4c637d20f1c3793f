#include "docs/exercises/8_fused/exercise.h"

namespace exercise {

void forward_row(const float* x, float scale, float shift, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = 0;  // To do.
  }
}

ParameterGradients backward_row(const float* x, float scale, float shift, const float* grad_y, float* grad_x,
                                int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    grad_x[i] = 0;  // To do.
  }
  return {};
}

}  // namespace exercise

#include <algorithm>

#include "docs/exercises/8_fused/exercise.h"

namespace exercise {

void forward_row(const float* x, float scale, float shift, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float u = scale * x[i] + shift;
    y[i] = u > 0 ? u : 0;
  }
}

ParameterGradients backward_row(const float* x, float scale, float shift, const float* grad_y, float* grad_x,
                                int64_t n) {
  double grad_scale = 0, grad_shift = 0;  // an f32 sum would be rounded after every addition
  // Two loops over a block that fits the cache are still one pass over memory. The compiler turns the first
  // loop into vector instructions. With the sums it could not, because their additions must keep their order;
  // then every element would be a branch that the processor cannot predict.
  constexpr int64_t block = 256;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(begin + block, n);
    for (int64_t i = begin; i < end; ++i) {
      const float u = scale * x[i] + shift, g = grad_y[i];
      grad_x[i] = u > 0 ? g : 0;
    }
    for (int64_t i = begin; i < end; ++i) {
      grad_scale += grad_x[i] * x[i];
      grad_shift += grad_x[i];
      grad_x[i] *= scale;
    }
  }
  return {static_cast<float>(grad_scale), static_cast<float>(grad_shift)};
}

}  // namespace exercise

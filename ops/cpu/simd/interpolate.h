#pragma once

#include <cstdint>

namespace vox::cpu::simd {

template <class T>
struct InterpolateOf {
  /// y = weight * a + weight_next * b
  void (*blend)(const T* a, const T* b, T weight, T weight_next, T* y, int64_t n, bool stream);
  /// y[o] = weight[o] * x[index[o]] + next_weight[o] * x[next[o]], or x[index[o]] alone where the second
  /// weight is 0.
  void (*blend_along)(const T* x, const int32_t* index, const int32_t* next, const T* weight,
                      const T* next_weight, T* y, int64_t n);
  /// y = 0 + weights[0] * rows[0] + weights[1] * rows[1] + ..., in this order.
  void (*weighted_sum)(const T* const* rows, const T* weights, int64_t count, T* y, int64_t n);
};

struct InterpolateKernels {
  InterpolateOf<float> f32;
  InterpolateOf<double> f64;
};

namespace baseline {
extern const InterpolateKernels interpolate_kernels;
}
namespace v3 {
extern const InterpolateKernels interpolate_kernels;
}
namespace v4 {
extern const InterpolateKernels interpolate_kernels;
}

}  // namespace vox::cpu::simd

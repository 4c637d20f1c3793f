#pragma once

#include <cstdint>

namespace vox::cpu::simd {

/// Loops of batch normalisation over a dense piece of one channel.
template <class T>
struct NormalizeOf {
  /// The sum of (x - mean)^2; lanes and tree as in a reduction's block.
  T (*squares)(const T* x, T mean, int64_t n);
  /// The sums of g and of g * (x - mean), likewise.
  void (*gradient_sums)(const T* g, const T* x, T mean, int64_t n, T* sum, T* product);
  /// y = (x - mean) * scale + shift
  void (*apply)(const T* x, T mean, T scale, T shift, T* y, int64_t n, bool stream);
  /// grad_x = scale * (g - g_mean - (x - mean) * slope)
  void (*gradient)(const T* g, const T* x, T mean, T scale, T g_mean, T slope, T* grad_x, int64_t n,
                   bool stream);
};

struct NormalizeKernels {
  NormalizeOf<float> f32;
  NormalizeOf<double> f64;
};

namespace baseline {
extern const NormalizeKernels normalize_kernels;
}
namespace v3 {
extern const NormalizeKernels normalize_kernels;
}
namespace v4 {
extern const NormalizeKernels normalize_kernels;
}

}  // namespace vox::cpu::simd

#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>

namespace vox::cpu::simd {

/// Loops of batch normalisation: over a dense piece of one channel, and over rows whose element c belongs to
/// channel c.
template <class T>
struct NormalizeOf {
  /// The sum of (x - mean)^2, with the lanes and tree of a reduction's block.
  T (*squares)(const T* x, T mean, int64_t n);
  /// The sums of g and of g * (x - mean), likewise.
  void (*gradient_sums)(const T* g, const T* x, T mean, int64_t n, T* sum, T* product);
  /// y = (x - mean) * scale + shift
  void (*apply)(const T* x, T mean, T scale, T shift, T* y, int64_t n, bool stream);
  /// grad_x = scale * (g - g_mean - (x - mean) * slope)
  void (*gradient)(const T* g, const T* x, T mean, T scale, T g_mean, T slope, T* grad_x, int64_t n,
                   bool stream);
  /// For `count` rows, row r at x + r * stride, let m be the rounded quotient sum[c] / count. Computes
  /// sum[c], the sum of rows[r][c]; rest[c], the sum of (rows[r][c] - m); and squares[c], the sum of
  /// (rows[r][c] - m)^2. Row r goes to partial sum r % 4, and these are added in pairs. Also prefetches the
  /// rows that follow.
  void (*statistics_of_rows)(const T* x, int64_t stride, int64_t count, int64_t width, T* sum, T* rest,
                             T* squares);
};

struct NormalizeKernels {
  NormalizeOf<float> f32;
  NormalizeOf<double> f64;
};

VOX_DECLARE_BY_ISA(NormalizeKernels, normalize_kernels);

}  // namespace vox::cpu::simd

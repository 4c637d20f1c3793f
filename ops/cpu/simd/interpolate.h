#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>

namespace vox::cpu::simd {

/// Passes along one axis, from `in` cells to `out`. If the axis is the innermost one ("along"), the loops
/// compute several outputs at once from a few neighbouring vectors of cells.
template <class T>
struct InterpolateOf {
  /// For r < rows: y[r] = weight[r] * x[index[r]] + next_weight[r] * x[next[r]], or x[index[r]] alone where
  /// the second weight is 0; rows of n elements.
  void (*blend_rows)(const T* x, const int64_t* index, const int64_t* next, const T* weight,
                     const T* next_weight, T* y, int64_t rows, int64_t n, bool stream);
  /// For `rows` rows of `in` elements each, and o < n: y[o] = weight[o] * x[index[o]] + next_weight[o] *
  /// x[next[o]], or x[index[o]] alone where the second weight is 0. `index` and `next` never decrease. Rows
  /// of y begin n elements apart.
  void (*blend_along)(const T* x, int64_t rows, int64_t in, const int32_t* index, const int32_t* next,
                      const T* weight, const T* next_weight, T* y, int64_t n);
  /// For r < rows: y[r] = 0 + weights[b] * x[outputs[b]] + weights[b + 1] * x[outputs[b + 1]] + ..., in this
  /// order, from b = begins[r] to begins[r + 1]; rows of n elements.
  void (*sum_rows)(const T* x, const int64_t* begins, const int64_t* outputs, const T* weights, T* y,
                   int64_t rows, int64_t n);
  /// For `rows` rows of `out` elements each, and i < n: y[i] = 0 + weights[i] * x[first[i]] + weights[n + i]
  /// * x[first[i] + 1] + ..., count[i] times, in this order. No count exceeds `taps`; `first` never
  /// decreases.
  void (*sum_along)(const T* x, int64_t rows, int64_t out, const int32_t* first, const int32_t* count,
                    int64_t taps, const T* weights, T* y, int64_t n);
};

VOX_DECLARE_BY_ISA(OfReals<InterpolateOf>, interpolate_kernels);

}  // namespace vox::cpu::simd

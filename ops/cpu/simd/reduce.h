#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>

namespace vox::cpu::simd {

/// The inner loops of a reduction, see ops/cpu/reduce.cpp for the order.
template <class T>
struct ReduceOf {
  /// Reduces one dense block: element i goes to lane i % 16, and the lanes are combined in a binary tree.
  T (*block)(const T* x, int64_t n);
  /// to[r * width + c] = block(y, n) with y[i] = x[r * stride + i * width + c], for c < width; width is 1, 2,
  /// 4 or 8.
  void (*blocks)(const T* x, int64_t stride, int64_t count, int64_t n, int64_t width, T* to);
  /// to[c] = combine(... combine(combine(to[c], rows[0][c]), rows[1][c]) ..., rows[count - 1][c]). If
  /// `begins`, the initial to[c] is the result of no elements, whatever it holds. Prefetches ahead[r][c].
  void (*combine)(T* to, const T* const* rows, int64_t count, int64_t width, bool begins,
                  const T* const* ahead);
};

/// max and min of rows that hold NaN are NaN.
template <class T>
struct ReductionsOf {
  ReduceOf<T> sum, max, min;
};

VOX_DECLARE_BY_ISA(OfReals<ReductionsOf>, reduce_kernels);

/// The sum of n numbers, added up in double.
template <class T>
using SumOf = double (*)(const T* x, int64_t n);
VOX_DECLARE_BY_ISA(OfReals<SumOf>, sum_kernels);

/// Whether all of n numbers are finite.
template <class T>
using FiniteOf = bool (*)(const T* x, int64_t n);
VOX_DECLARE_BY_ISA(OfReals<FiniteOf>, finite_kernels);

}  // namespace vox::cpu::simd

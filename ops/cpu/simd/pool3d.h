#pragma once

#include <cstdint>
#include <type_traits>

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/pool3d_axis.h>

namespace vox::cpu::simd {

/// The three axes of pooling, none of them adaptive. A plane of cells, and one of windows, is dense.
struct PoolAxes {
  PoolAxis d, h, w;
  bool count_padding, whole_divisor_along_w;  // of the mean
};

/// pool_reach: number of elements that the windows of a row span, padding included. pool_phase: how many of
/// them have the same remainder modulo the stride.
static inline int64_t pool_reach(const PoolAxes& a) {
  const int64_t reach = (a.w.out - 1) * a.w.stride + (a.w.kernel - 1) * a.w.dilation + 1;
  const int64_t padded = a.w.padding + a.w.in;
  return reach > padded ? reach : padded;
}
static inline int64_t pool_phase(const PoolAxes& a) { return pool_reach(a) / a.w.stride + 1; }

/// Elements that one call needs in `column`.
static inline int64_t pool_column_size(const PoolAxes& a) {
  return pool_reach(a) + pool_phase(a) * a.w.stride;
}

/// The integer type that numbers a plane's cells, as wide as T.
template <class T>
using PoolIndex = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

/// Windows (or cells) with d in [d_begin, d_end) of one plane.
template <class T>
struct Pool3dOf {
  /// y = the first maximum (or last NaN) of each window, index = its cell; -infinity and -1 for a window
  /// without cells. `index` and `column_index` may both be null; then y may be either of +0 and -0, and any
  /// of several NaNs. With indices, a plane must have fewer cells than the largest PoolIndex<T>.
  void (*max)(const PoolAxes& axes, int64_t d_begin, int64_t d_end, const T* x, T* y, int64_t* index,
              T* column, PoolIndex<T>* column_index);
  /// y = the mean of each window. divisor_w[o] is the contribution of W to the divisor, or all of it.
  void (*mean)(const PoolAxes& axes, int64_t d_begin, int64_t d_end, const T* x, const T* divisor_w, T* y,
               T* column);
  /// x = for each cell, the sum of y / divisor over the windows that cover it. Dilation is 1. `column` has
  /// room for a row of windows, `slice` for the cells of one depth. `stream` writes past the cache.
  void (*mean_adjoint)(const PoolAxes& axes, int64_t d_begin, int64_t d_end, const T* y, const T* divisor_w,
                       T* x, T* column, T* slice, bool stream);
};

VOX_DECLARE_BY_ISA(OfReals<Pool3dOf>, pool3d_kernels);

}  // namespace vox::cpu::simd

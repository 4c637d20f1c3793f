#pragma once

#include <voxgrad/ops/cpu/simd/pool3d.h>
#include <voxgrad/ops/cpu/simd/vec.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

// Shared by pooling's loops over rows: which rows and cells belong to which windows, and the column. A column
// combines the cell rows under a row of windows into one row, in which every tap of the windows is dense.

namespace vox::cpu::simd::VOXGRAD_ISA {

template <class T>
inline constexpr T lowest = -__builtin_huge_val();

/// The larger one; NaN if either is. For numbers and for vectors.
template <class V>
[[gnu::always_inline]] inline V larger(V a, V b) {
  const V of_numbers = b > a ? b : a;  // one instruction; returns a if a is NaN
  return b != b ? b : of_numbers;
}
#if defined(__AVX512F__)  // otherwise the compiler combines two masks
[[gnu::always_inline]] inline Vec<float> larger(Vec<float> a, Vec<float> b) {
  return _mm512_mask_max_ps(b, _mm512_cmp_ps_mask(b, b, _CMP_ORD_Q), b, a);
}
[[gnu::always_inline]] inline Vec<double> larger(Vec<double> a, Vec<double> b) {
  return _mm512_mask_max_pd(b, _mm512_cmp_pd_mask(b, b, _CMP_ORD_Q), b, a);
}
#endif

/// Distance of prefetches ahead of a row's loads; the rows of a plane are contiguous.
template <class T>
inline constexpr int64_t ahead = 1024 / sizeof(T);

/// An axis of PoolAxes, for which the compiler leaves out the code of adaptive windows.
[[gnu::always_inline]] inline const PoolAxis& fixed(const PoolAxis& axis) {
  if (axis.adaptive) __builtin_unreachable();
  return axis;
}

/// The contribution of D or H to the divisor of window o's mean.
template <class T>
T extent(const PoolAxes& g, const PoolAxis& axis, int64_t o) {
  if (g.whole_divisor_along_w) return 1;
  return static_cast<T>(fixed(axis).positions(o, g.count_padding ? axis.padding : 0));
}

/// Calls f(rows, count, is_first) with the rows of cells under windows (d, h), `most` at a time.
template <int most, class T, class F>
[[gnu::always_inline]] inline void for_rows_under(const PoolAxes& g, const T* x, int64_t d, int64_t h, F f) {
  const PoolRange over_d = fixed(g.d).covered_cells(d), over_h = fixed(g.h).covered_cells(h);
  const T* rows[most];
  int count = 0;
  bool first = true;
  for (int64_t i = over_d.begin; i < over_d.end; i += over_d.step) {
    for (int64_t j = over_h.begin; j < over_h.end; j += over_h.step) {
      rows[count++] = x + (i * g.h.in + j) * g.w.in;
      if (count == most) {
        f(rows, count, first);
        count = 0;
        first = false;
      }
    }
  }
  if (count > 0) f(rows, count, first);
}

template <class T>
[[gnu::always_inline]] inline void pad_column(const PoolAxes& g, T* column, T value) {
  for (int64_t i = 0; i < g.w.padding; ++i) column[i] = value;
  for (int64_t i = g.w.padding + g.w.in; i < pool_reach(g); ++i) column[i] = value;
}

/// A column in which every tap of the windows is dense: element o of tap k is at(k)[o]. For strides above 1,
/// update() stores the column's phases (elements with the same remainder modulo the stride) behind it, one
/// after the other.
template <class T>
class Taps {
 public:
  Taps(const PoolAxes& g, T* column)
      : stride_(g.w.stride),
        dilation_(g.w.dilation),
        phase_(pool_phase(g)),
        reach_(pool_reach(g)),
        column_(column) {
    for (int64_t k = 0; k < prepared && k < g.w.kernel; ++k) offset_[k] = offset_of(k);
  }
  void update() const {
    T* const phases = column_ + reach_;
    if (stride_ == 2) {
#pragma GCC ivdep
      for (int64_t o = 0; o < reach_ / 2; ++o) {
        phases[o] = column_[2 * o];
        phases[phase_ + o] = column_[2 * o + 1];
      }
      if (reach_ % 2 == 1) phases[reach_ / 2] = column_[reach_ - 1];
    } else if (stride_ > 2) {
      for (int64_t r = 0; r < stride_ && r < reach_; ++r) {
        for (int64_t o = 0; r + o * stride_ < reach_; ++o) phases[r * phase_ + o] = column_[r + o * stride_];
      }
    }
  }
  const T* at(int64_t k) const { return column_ + (k < prepared ? offset_[k] : offset_of(k)); }

 private:
  static constexpr int64_t prepared = 8;  // offsets computed once, because each takes a division
  int64_t offset_of(int64_t k) const {
    const int64_t offset = k * dilation_;
    return stride_ == 1 ? offset : reach_ + offset % stride_ * phase_ + offset / stride_;
  }

  int64_t stride_, dilation_, phase_, reach_;
  T* column_;
  int64_t offset_[prepared] = {};
};

/// y[o] = combine(... combine(tap 0, tap 1) ..., tap K - 1), lane by lane or one by one.
template <class T, class F>
[[gnu::always_inline]] inline void combine_taps(const PoolAxes& g, const Taps<T>& taps, T* y, F combine) {
  taps.update();
  const int64_t n = g.w.out, kernel = g.w.kernel;
  constexpr int most = 4;
  const T* tap[most];
  for (int64_t done = 0; done < kernel; done += most) {
    const int64_t count = kernel - done < most ? kernel - done : most;
    for (int64_t k = 0; k < count; ++k) tap[k] = taps.at(done + k);
    int64_t o = 0;
    for (; o + lanes<T> <= n; o += lanes<T>) {
      Vec<T> v = load(tap[0] + o);
      if (done > 0) v = combine(load(y + o), v);
      for (int64_t k = 1; k < count; ++k) v = combine(v, load(tap[k] + o));
      store(y + o, v);
    }
    for (; o < n; ++o) {
      T v = tap[0][o];
      if (done > 0) v = combine(y[o], v);
      for (int64_t k = 1; k < count; ++k) v = combine(v, tap[k][o]);
      y[o] = v;
    }
  }
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA

// Pooling by rows of windows. First all rows of cells under a row of windows are combined into a column, in
// long dense runs. Then the windows take their cells from it along the row. So a cell is read once for every
// row of windows over it, not for every window. The column's ends are padded with neutral elements, so no
// window needs a test. Built like elementwise.cpp, see Note [Same bits everywhere] there.

#include <voxgrad/ops/cpu/simd/pool3d_max.h>
#include <voxgrad/ops/cpu/simd/pool3d_rows.h>
#include <voxgrad/ops/cpu/simd/step_two.h>
#include <voxgrad/ops/cpu/simd/stream.h>

#include <cstddef>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

// ---- Windows of 2 x 2 x 2 cells, 2 apart -----------------------------------------------------------------

/// Whether windows (d, all h) cover 2 x 2 rows of cells and take two cells at stride 2 along W. Then no
/// column is needed.
inline bool are_pairs(const PoolAxes& g, int64_t d) {
  bool pairs = g.w.in >= 2 * g.w.out && g.w.padding == 0;
  const PoolAxis* const axes[] = {&g.d, &g.h, &g.w};
  for (const PoolAxis* axis : axes)
    pairs = pairs && axis->kernel == 2 && axis->stride == 2 && axis->dilation == 1;
  const int64_t begin = 2 * d - g.d.padding;
  return pairs && g.h.padding == 0 && 2 * g.h.out <= g.h.in && begin >= 0 && begin + 2 <= g.d.in;
}

/// Windows (d, all h): calls finish(along W of (down the four rows), o) for window o of its row, on vectors
/// or single numbers.
template <class T, class Down, class Along, class Finish>
[[gnu::always_inline]] inline void combine_pairs(const PoolAxes& g, const T* x, int64_t d, T* y, Down down,
                                                 Along along, Finish finish) {
  constexpr auto all = std::make_index_sequence<lanes<T>>();
  const int64_t width = g.w.in, slice = g.h.in * width, n = g.w.out;
  for (int64_t h = 0; h < g.h.out; ++h, y += n) {
    const T *const a = x + (2 * d - g.d.padding) * slice + 2 * h * width, *const b = a + width,
                   *const c = a + slice, *const e = c + width;
    const T* const rows[] = {a, b, c, e};
    int64_t o = 0;
    for (; o + lanes<T> <= n; o += lanes<T>) {
      Vec<T> v[2];
      for (int half = 0; half < 2; ++half) {
        const int64_t i = 2 * o + half * lanes<T>;
        for (const T* row : rows) __builtin_prefetch(row + i + ahead<T>);
        v[half] = down(load(a + i), load(b + i), load(c + i), load(e + i));
      }
      store(y + o,
            finish(along(detail::even_lanes<T>(v[0], v[1], all), detail::odd_lanes<T>(v[0], v[1], all)), o));
    }
    for (; o < n; ++o) {
      const auto at = [=](int64_t i) { return down(a[i], b[i], c[i], e[i]); };
      y[o] = finish(along(at(2 * o), at(2 * o + 1)), o);
    }
  }
}

// ---- Maximum ---------------------------------------------------------------------------------------------

template <class T>
void max_values(const PoolAxes& g, int64_t d_begin, int64_t d_end, const T* x, T* y, T* column) {
  pad_column(g, column, lowest<T>);
  const Taps<T> taps(g, column);
  T* const middle = column + g.w.padding;
  const bool triples = are_triples<T>(g);
  for (int64_t d = d_begin; d < d_end; ++d) {
    if (are_pairs(g, d)) {
      combine_pairs(
          g, x, d, y + d * g.h.out * g.w.out,
          [](auto p, auto q, auto r, auto s) { return larger(larger(p, q), larger(r, s)); },
          [](auto p, auto q) { return larger(p, q); }, [](auto v, int64_t) { return v; });
      continue;
    }
    for (int64_t h = 0; h < g.h.out; ++h) {
      T* const to = y + (d * g.h.out + h) * g.w.out;
      bool any = false;
      for_rows_under<most_rows>(g, x, d, h, [&](const T** rows, int count, bool first) {
        any = true;
        if (!triples)
          larger_of_rows(rows, count, g.w.in, first, middle);
        else if (count == most_rows)
          max_of_triples<T, most_rows>(rows, count, g.w.out, to);
        else
          max_of_triples<T, 0>(rows, count, g.w.out, to);
      });
      if (any && triples) continue;
      for (int64_t i = 0; !any && i < g.w.in; ++i) middle[i] = lowest<T>;
      combine_taps(g, taps, to, [](auto a, auto b) { return larger(a, b); });
    }
  }
}

/// Whether b replaces an a that comes earlier: the first maximum stays, a NaN only until the next NaN.
template <class V>
[[gnu::always_inline]] inline auto beats(V b, V a) {
  return (b > a) | (b != b);
}
/// Whether b replaces a, in whichever order they come.
template <class V, class I>
[[gnu::always_inline]] inline auto beats_at(V b, I b_at, V a, I a_at) {
  return (b > a) | ((b == a) & (b_at < a_at)) | ((b != b) & ((a == a) | (b_at > a_at)));
}

template <class T>
inline constexpr PoolIndex<T> no_index = sizeof(T) == 4 ? INT32_MAX : INT64_MAX;

/// The vector 0, 1, 2, ...
template <class I>
[[gnu::always_inline]] inline Vec<I> counting() {
  Vec<I> v;
  for (int i = 0; i < lanes<I>; ++i) v[i] = i;
  return v;
}

template <class T>
void first_maximum_of_row(const T* row, PoolIndex<T> begin, int64_t n, bool first, T* column,
                          PoolIndex<T>* at) {
  using I = PoolIndex<T>;
  int64_t i = 0;
  Vec<I> place = counting<I>() + begin;
  for (; i + lanes<T> <= n; i += lanes<T>) {
    Vec<T> v = load(row + i);
    Vec<I> p = place;
    if (!first) {
      const Vec<T> best = load(column + i);
      const auto wins = beats(v, best);
      v = wins ? v : best;
      p = wins ? p : load(at + i);
    }
    store(column + i, v);
    store(at + i, p);
    place += static_cast<I>(lanes<T>);
  }
  for (; i < n; ++i) {
    if (!first && !beats(row[i], column[i])) continue;
    column[i] = row[i];
    at[i] = begin + static_cast<I>(i);
  }
}

template <class T>
void first_maximum_of_taps(const PoolAxes& g, const Taps<T>& values, const Taps<PoolIndex<T>>& places, T* y,
                           int64_t* index) {
  using I = PoolIndex<T>;
  values.update();
  places.update();
  const int64_t n = g.w.out;
  int64_t o = 0;
  for (; o + lanes<T> <= n; o += lanes<T>) {
    Vec<T> v = load(values.at(0) + o);
    Vec<I> p = load(places.at(0) + o);
    for (int64_t k = 1; k < g.w.kernel; ++k) {
      const Vec<T> other = load(values.at(k) + o);
      const Vec<I> other_at = load(places.at(k) + o);
      const auto wins = beats_at(other, other_at, v, p);
      v = wins ? other : v;
      p = wins ? other_at : p;
    }
    store(y + o, v);
    for (int i = 0; i < lanes<T>; ++i) index[o + i] = p[i] == no_index<T> ? -1 : p[i];
  }
  for (; o < n; ++o) {
    T v = values.at(0)[o];
    I p = places.at(0)[o];
    for (int64_t k = 1; k < g.w.kernel; ++k) {
      if (!beats_at(values.at(k)[o], places.at(k)[o], v, p)) continue;
      v = values.at(k)[o];
      p = places.at(k)[o];
    }
    y[o] = v;
    index[o] = p == no_index<T> ? -1 : p;
  }
}

template <class T>
void max(const PoolAxes& g, int64_t d_begin, int64_t d_end, const T* x, T* y, int64_t* index, T* column,
         PoolIndex<T>* column_at) {
  if (index == nullptr) return max_values(g, d_begin, d_end, x, y, column);
  pad_column(g, column, lowest<T>);
  pad_column(g, column_at, no_index<T>);
  const Taps<T> values(g, column);
  const Taps<PoolIndex<T>> places(g, column_at);
  const int64_t pad = g.w.padding;
  for (int64_t d = d_begin; d < d_end; ++d) {
    for (int64_t h = 0; h < g.h.out; ++h) {
      bool any = false;
      for_rows_under<4>(g, x, d, h, [&](const T** rows, int count, bool first) {
        any = true;
        for (int r = 0; r < count; ++r) {
          first_maximum_of_row(rows[r], static_cast<PoolIndex<T>>(rows[r] - x), g.w.in, first && r == 0,
                               column + pad, column_at + pad);
        }
      });
      for (int64_t i = 0; !any && i < g.w.in; ++i) {
        column[pad + i] = lowest<T>;
        column_at[pad + i] = no_index<T>;
      }
      const int64_t to = (d * g.h.out + h) * g.w.out;
      first_maximum_of_taps(g, values, places, y + to, index + to);
    }
  }
}

// ---- Mean ------------------------------------------------------------------------------------------------

template <class T>
void mean(const PoolAxes& g, int64_t d_begin, int64_t d_end, const T* x, const T* divisor_w, T* y,
          T* column) {
  pad_column(g, column, T(0));
  const Taps<T> taps(g, column);
  T* const middle = column + g.w.padding;
  const int64_t n = g.w.in;
  for (int64_t d = d_begin; d < d_end; ++d) {
    if (are_pairs(g, d)) {
      const T area = extent<T>(g, g.d, d) * extent<T>(g, g.h, 0);  // no window contains padding along H
      combine_pairs(
          g, x, d, y + d * g.h.out * g.w.out,
          [](auto p, auto q, auto r, auto s) { return ((p + q) + r) + s; },
          [](auto p, auto q) { return p + q; },
          [=]<class V>(V v, int64_t o) {
            if constexpr (sizeof(V) == sizeof(T))
              return v / (area * divisor_w[o]);
            else
              return v / (area * load(divisor_w + o));
          });
      continue;
    }
    for (int64_t h = 0; h < g.h.out; ++h) {
      for_rows_under<4>(g, x, d, h, [&](const T** rows, int count, bool first) {
        const T *const a = rows[0], *const b = rows[1], *const c = rows[2], *const e = rows[3];
        if (first && count == 4) {
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i) middle[i] = ((a[i] + b[i]) + c[i]) + e[i];
          return;
        }
        for (int r = 0; r < count; ++r) {
          const T* const row = rows[r];
          if (first && r == 0) {
            for (int64_t i = 0; i < n; ++i) middle[i] = row[i];
          } else {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) middle[i] += row[i];
          }
        }
      });
      T* const to = y + (d * g.h.out + h) * g.w.out;
      const T area = extent<T>(g, g.d, d) * extent<T>(g, g.h, h);
      combine_taps(g, taps, to, [](auto a, auto b) { return a + b; });
#pragma GCC ivdep
      for (int64_t o = 0; o < g.w.out; ++o) to[o] /= area * divisor_w[o];
    }
  }
}

/// Computes one row of cells from the rows of windows that cover it.
template <class T>
void mean_adjoint_row(const PoolAxes& g, PoolRange over_d, PoolRange over_h, const T* y, const T* divisor_w,
                      T* x, T* column) {
  const int64_t n = g.w.out;
  for (int64_t o = 0; o < n; ++o) column[o] = 0;
  for (int64_t i = over_d.begin; i < over_d.end; ++i) {
    for (int64_t j = over_h.begin; j < over_h.end; ++j) {
      const T* const row = y + (i * g.h.out + j) * n;
      const T area = extent<T>(g, g.d, i) * extent<T>(g, g.h, j);
#pragma GCC ivdep
      for (int64_t o = 0; o < n; ++o) column[o] += row[o] / (area * divisor_w[o]);
    }
  }
  if (g.w.kernel == 2 && g.w.stride == 2 && g.w.padding == 0 && g.w.in == 2 * n)
    return interleave(column, n, column, n, x);
  for (int64_t i = 0; i < g.w.in; ++i) x[i] = 0;
  // Descending, so that the earliest window over a cell is added first.
  for (int64_t k = g.w.kernel - 1; k >= 0; --k) {
    const int64_t first = k - g.w.padding, stride = g.w.stride, last = g.w.in - 1 - first;
    const int64_t begin = first < 0 ? (-first + stride - 1) / stride : 0;
    int64_t end = last < 0 ? 0 : last / stride + 1;
    end = end < n ? end : n;
    T* const to = x + first;
#pragma GCC ivdep
    for (int64_t o = begin; o < end; ++o) to[o * stride] += column[o];
  }
}

inline bool equal(PoolRange a, PoolRange b) { return a.begin == b.begin && a.end == b.end; }

template <class T>
void mean_adjoint(const PoolAxes& g, int64_t d_begin, int64_t d_end, const T* y, const T* divisor_w, T* x,
                  T* column, T* slice, bool stream) {
  const int64_t width = g.w.in, size = g.h.in * width;
  for (int64_t d = d_begin; d < d_end; ++d) {
    const PoolRange over_d = fixed(g.d).windows_over(d);
    // A slice, or a row, that the same windows cover as the previous one has the same sums.
    const bool again = d > d_begin && equal(over_d, fixed(g.d).windows_over(d - 1));
    for (int64_t h = 0; !again && h < g.h.in; ++h) {
      const PoolRange over_h = fixed(g.h).windows_over(h);
      T* const row = slice + h * width;
      if (h > 0 && equal(over_h, fixed(g.h).windows_over(h - 1)))
        __builtin_memcpy(row, row - width, static_cast<size_t>(width) * sizeof(T));
      else
        mean_adjoint_row(g, over_d, over_h, y, divisor_w, row, column);
    }
    copy_run(reinterpret_cast<const char*>(slice), reinterpret_cast<char*>(x + d * size),
             size * static_cast<int64_t>(sizeof(T)), stream);
  }
}

template <class T>
constexpr Pool3dOf<T> table{max<T>, mean<T>, mean_adjoint<T>};

}  // namespace

const OfReals<Pool3dOf> pool3d_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA

#pragma once

#include <voxgrad/ops/cpu/simd/pool3d_rows.h>
#include <voxgrad/ops/cpu/simd/step_two.h>

// Maxima of rows of cells, without their indices.

namespace vox::cpu::simd::VOXGRAD_ISA {

/// column = the maximum of some rows and, unless it is not yet written, of column itself.
template <class T>
void larger_of_rows(const T* const* rows, int count, int64_t n, bool first, T* column) {
  const auto of_all = [=](auto at) {
    auto v = at(rows[0]);
    for (int r = 1; r < count; ++r) v = larger(v, at(rows[r]));
    return first ? v : larger(at(column), v);
  };
  int64_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) {
    for (int r = 0; r < count; ++r) __builtin_prefetch(rows[r] + i + ahead<T>);
    store(column + i, of_all([=](const T* row) { return load(row + i); }));
  }
  for (; i < n; ++i) column[i] = of_all([=](const T* row) { return row[i]; });
}

/// Lane i of the result is lane i - 1 of v, and lane 0 the last one of `before`.
template <class T, size_t... l>
[[gnu::always_inline]] inline Vec<T> shifted(Vec<T> before, Vec<T> v, std::index_sequence<l...>) {
  return __builtin_shufflevector(before, v, (lanes<T> - 1 + static_cast<int>(l))...);
}

constexpr int most_rows = 9;

/// Whether no column is needed: windows have three cells along W and stride 2, the first one begins with
/// padding, they cover few rows and fill vectors.
template <class T>
bool are_triples(const PoolAxes& g) {
  const bool along_w = g.w.kernel == 3 && g.w.stride == 2 && g.w.dilation == 1 && g.w.padding == 1;
  return along_w && g.d.kernel <= most_rows && g.h.kernel <= most_rows / g.d.kernel &&
         g.w.out % lanes<T> == 0 && 2 * g.w.out <= g.w.in;
}

/// The maxima of a row of such windows over some rows of cells.
template <class T, int known>
[[gnu::always_inline]] inline void max_of_triples(const T* const* rows, int count, int64_t n, T* y) {
  constexpr auto all = std::make_index_sequence<lanes<T>>();
  const T* row[most_rows];
  if constexpr (known > 0) count = known;
  for (int r = 0; r < count; ++r) row[r] = rows[r];
  const auto down = [&](auto at) {
    auto v = at(row[0]);
    for (int r = 1; r < count; ++r) v = larger(v, at(row[r]));
    return v;
  };
  Vec<T> before = Vec<T>{} + lowest<T>;  // the odd cells of the previous windows
  for (int64_t o = 0; o < n; o += lanes<T>) {
    Vec<T> v[2];
    for (int half = 0; half < 2; ++half) {
      const int64_t i = 2 * o + half * lanes<T>;
      for (int r = 0; r < count; ++r) __builtin_prefetch(row[r] + i + ahead<T>);
      v[half] = down([=](const T* from) { return load(from + i); });
    }
    const Vec<T> even = detail::even_lanes<T>(v[0], v[1], all), odd = detail::odd_lanes<T>(v[0], v[1], all);
    store(y + o, larger(larger(shifted<T>(before, odd, all), even), odd));
    before = odd;
  }
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA

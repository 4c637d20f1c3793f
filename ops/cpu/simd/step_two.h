#pragma once

#include <utility>  // index_sequence, a type without code

#include <voxgrad/ops/cpu/simd/vec.h>

// Reading and writing rows at stride 2. The last few elements go one by one; a copy has the same bits either
// way.

namespace vox::cpu::simd::VOXGRAD_ISA {

namespace detail {

template <class T, size_t... l>
[[gnu::always_inline]] inline Vec<T> even_lanes(Vec<T> a, Vec<T> b, std::index_sequence<l...>) {
  return __builtin_shufflevector(a, b, (2 * static_cast<int>(l))...);
}

template <class T, size_t... l>
[[gnu::always_inline]] inline Vec<T> odd_lanes(Vec<T> a, Vec<T> b, std::index_sequence<l...>) {
  return __builtin_shufflevector(a, b, (2 * static_cast<int>(l) + 1)...);
}

/// The lower or upper halves of a and b, interleaved.
template <class T, bool upper, size_t... l>
[[gnu::always_inline]] inline Vec<T> zip(Vec<T> a, Vec<T> b, std::index_sequence<l...>) {
  constexpr int n = lanes<T>, first = upper ? n / 2 : 0;
  return __builtin_shufflevector(a, b,
                                 (first + static_cast<int>(l) / 2 + (static_cast<int>(l) % 2 ? n : 0))...);
}

}  // namespace detail

/// to[i] = from[2 * i] for i < n; reads nothing beyond from[2 * n - 2].
template <class T>
void every_second(const T* from, int64_t n, T* to) {
  int64_t i = 0;
  for (; i + lanes<T> < n; i += lanes<T>)
    store(to + i, detail::even_lanes<T>(load(from + 2 * i), load(from + 2 * i + lanes<T>),
                                        std::make_index_sequence<lanes<T>>()));
  for (; i < n; ++i) to[i] = from[2 * i];
}

/// to = a[0], b[0], a[1], b[1], ...; na is nb or nb + 1.
template <class T>
void interleave(const T* a, int64_t na, const T* b, int64_t nb, T* to) {
  constexpr auto all = std::make_index_sequence<lanes<T>>();
  int64_t i = 0;
  for (; i + lanes<T> <= nb; i += lanes<T>) {
    const Vec<T> x = load(a + i), y = load(b + i);
    store(to + 2 * i, detail::zip<T, false>(x, y, all));
    store(to + 2 * i + lanes<T>, detail::zip<T, true>(x, y, all));
  }
  for (; i < nb; ++i) to[2 * i] = a[i], to[2 * i + 1] = b[i];
  if (na > nb && na > 0) to[2 * (na - 1)] = a[na - 1];
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA

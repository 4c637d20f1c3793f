#pragma once

#include <utility>  // index_sequence, a type without code

#include <voxgrad/ops/cpu/simd/vec.h>

// Sums over the lanes of many vectors at once. Summing one vector of 16 takes 4 shuffles and 4 additions. But
// two vectors that are to be folded in half fold into a single one with 2 shuffles and 1 addition. So 16
// vectors take 15 such foldings, and their sums end side by side in one vector.

namespace vox::cpu::simd::VOXGRAD_ISA {

namespace detail {

/// The lane that lane l of the folding of a and b reads, in a followed by b. Segments of 2 * half lanes
/// become segments of half lanes: for each segment first a's, then b's. `upper` selects the half of the
/// segment.
template <int half, int lanes>
constexpr int fold_lane(int l, bool upper) {
  const int segment = l / (2 * half), in_b = l / half % 2, i = l % half;
  return in_b * lanes + segment * 2 * half + i + (upper ? half : 0);
}

template <class T, int half, size_t... l>
[[gnu::always_inline]] inline Vec<T> fold(Vec<T> a, Vec<T> b, std::index_sequence<l...>) {
  return __builtin_shufflevector(a, b, fold_lane<half, lanes<T>>(static_cast<int>(l), false)...) +
         __builtin_shufflevector(a, b, fold_lane<half, lanes<T>>(static_cast<int>(l), true)...);
}

/// Folds `count` vectors, a power of two up to `lanes`. The sum of vector i ends in lane i * lanes / count.
template <class T, int count, int half>
[[gnu::always_inline]] inline Vec<T> fold_all(const Vec<T>* v) {
  constexpr auto all = std::make_index_sequence<lanes<T>>();
  if constexpr (half == 0) {
    return v[0];
  } else if constexpr (count == 1) {
    const Vec<T> folded = fold<T, half>(v[0], v[0], all);
    return fold_all<T, 1, half / 2>(&folded);
  } else {
    Vec<T> folded[count / 2];
    for (int i = 0; i < count / 2; ++i) folded[i] = fold<T, half>(v[i], v[i + count / 2], all);
    return fold_all<T, count / 2, half / 2>(folded);
  }
}

}  // namespace detail

/// to[i] = the sum of the lanes of v[i], for i < count.
template <class T, int count>
[[gnu::always_inline]] inline void sums_of_lanes(const Vec<T>* v, T* to) {
  constexpr int now = count >= lanes<T> ? lanes<T> : 1 << (31 - __builtin_clz(count));
  const Vec<T> sums = detail::fold_all<T, now, lanes<T> / 2>(v);
  for (int i = 0; i < now; ++i) to[i] = sums[i * (lanes<T> / now)];
  if constexpr (count > now) sums_of_lanes<T, count - now>(v + now, to + now);
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA

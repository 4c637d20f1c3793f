#pragma once

#include <type_traits>

#include <voxgrad/ops/cpu/simd/vec.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Lanes chosen at run time: a gather from one or two vectors in registers.

namespace vox::cpu::simd::VOXGRAD_ISA {

/// Vectors of lane numbers, which are integers as wide as T.
template <class T>
struct LaneNumberOf {
  using element = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef int32_t narrow __attribute__((vector_size(lanes<T> * 4)));
};
template <class T>
using LaneNumbers = Vec<typename LaneNumberOf<T>::element>;

/// The same number in all lanes.
template <class T>
[[gnu::always_inline]] inline LaneNumbers<T> numbers(int64_t n) {
  return LaneNumbers<T>{} + static_cast<typename LaneNumberOf<T>::element>(n);
}
template <class T>
[[gnu::always_inline]] inline LaneNumbers<T> load_numbers(const int32_t* from) {
  typename LaneNumberOf<T>::narrow v;
  std::memcpy(&v, from, sizeof v);
  return __builtin_convertvector(v, LaneNumbers<T>);
}

// pick(a, at): lane i is lane at[i] of a. pick(a, b, at): the same for a and b, one after the other. Numbers
// out of range give any lane.
#if defined(__AVX512F__)
inline constexpr bool picks_lanes = true;

[[gnu::always_inline]] inline Vec<float> pick(Vec<float> a, Vec<float> b, LaneNumbers<float> at) {
  return _mm512_permutex2var_ps(a, reinterpret_cast<__m512i>(at), b);
}
[[gnu::always_inline]] inline Vec<double> pick(Vec<double> a, Vec<double> b, LaneNumbers<double> at) {
  return _mm512_permutex2var_pd(a, reinterpret_cast<__m512i>(at), b);
}
template <class V, class I>
[[gnu::always_inline]] inline V pick(V a, I at) {
  return pick(a, a, at);
}
#elif defined(__AVX2__)
inline constexpr bool picks_lanes = true;

[[gnu::always_inline]] inline Vec<float> pick(Vec<float> a, LaneNumbers<float> at) {
  return _mm256_permutevar8x32_ps(a, reinterpret_cast<__m256i>(at));
}
[[gnu::always_inline]] inline Vec<double> pick(Vec<double> a, LaneNumbers<double> at) {
  // Numbers of the 32-bit halves of the lanes.
  const LaneNumbers<double> low = 2 * (at & 3), both = low | (low + 1) << 32;
  return reinterpret_cast<Vec<double>>(
      _mm256_permutevar8x32_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256i>(both)));
}
template <class V, class I>
[[gnu::always_inline]] inline V pick(V a, V b, I at) {
  constexpr int n = sizeof(V) / sizeof(a[0]);
  const V from_a = pick(a, at), from_b = pick(b, at);
  return at < n ? from_a : from_b;
}
#else  // no instruction chooses lanes at run time
inline constexpr bool picks_lanes = false;

template <class V, class I>
V pick(V a, I at);
template <class V, class I>
V pick(V a, V b, I at);
#endif

}  // namespace vox::cpu::simd::VOXGRAD_ISA

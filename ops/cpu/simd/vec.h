#pragma once

#include <cstdint>
#include <cstring>

// One SIMD vector as a value: the vectors of GCC and Clang, as wide as the instruction set that this file is
// compiled for. `a * b + c` of them is one fma where the instruction set has it.

namespace vox::cpu::simd::VOXGRAD_ISA {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64, vector_registers = 32;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32, vector_registers = 16;
#elif defined(__aarch64__)
inline constexpr int vector_bytes = 16, vector_registers = 32;
#else
inline constexpr int vector_bytes = 16, vector_registers = 16;
#endif

/// The vector of T; `lanes<T>` elements.
template <class T>
struct VecOf {
  typedef T type __attribute__((vector_size(vector_bytes)));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

/// From and to any address.
template <class T>
[[gnu::always_inline]] inline Vec<T> load(const T* from) {
  Vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
[[gnu::always_inline]] inline void store(T* to, Vec<T> v) {
  std::memcpy(to, &v, sizeof v);
}

/// Makes the compiler load `v` once and keep it in a register. Otherwise it may repeat the load in every
/// instruction that uses `v`.
template <class V>
[[gnu::always_inline]] inline V in_register(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA

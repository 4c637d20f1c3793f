#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <voxgrad/core/half.h>
#include <voxgrad/ops/cpu/simd/memory.h>
#include <voxgrad/ops/element.h>

namespace vox::cpu {

/// Copies a dense run. A short one goes in parts of 32 bytes, of which the last may overlap the one before
/// it: a call of memmove would take longer than the copy.
template <class T>
void copy_run(const T* from, T* to, int64_t n) {
  constexpr int64_t part = 32 / sizeof(T);
  if (n < part || n > 8 * part) {
    std::copy_n(from, n, to);
    return;
  }
  for (int64_t i = 0; i + part < n; i += part) std::memcpy(to + i, from + i, part * sizeof(T));
  std::memcpy(to + n - part, from + n - part, part * sizeof(T));
}

/// Casts a dense run. f16 has loops for each instruction set: without vectors its conversion takes most of a
/// kernel's time.
template <class From, class To>
void convert_run(const From* from, To* to, int64_t n) {
  constexpr ByIsa half = VOX_BY_ISA(half_kernels);
  if constexpr (std::is_same_v<From, float16> && std::is_same_v<To, float>)
    half.here().widen(reinterpret_cast<const uint16_t*>(from), to, n);
  else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float16>)
    half.here().narrow(from, reinterpret_cast<uint16_t*>(to), n);
  else if constexpr (std::is_same_v<From, To>)
    copy_run(from, to, n);
  else
    std::transform(from, from + n, to, [](From x) { return detail::convert<To>(x); });
}

}  // namespace vox::cpu

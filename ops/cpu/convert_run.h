#pragma once

#include <algorithm>
#include <type_traits>

#include <voxgrad/core/half.h>
#include <voxgrad/ops/cpu/simd/memory.h>
#include <voxgrad/ops/element.h>

namespace vox::cpu {

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
    std::copy_n(from, n, to);
  else
    std::transform(from, from + n, to, [](From x) { return detail::convert<To>(x); });
}

}  // namespace vox::cpu

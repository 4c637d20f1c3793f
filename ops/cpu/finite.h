#pragma once

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/finite.h>

namespace vox::cpu {

inline constexpr ByIsa finite_kernels = VOX_BY_ISA(finite_kernels);

/// Whether all of n numbers are finite.
template <class T>
bool all_finite(const T* x, int64_t n) {
  return finite_kernels.of<T>()(x, n);
}

}  // namespace vox::cpu

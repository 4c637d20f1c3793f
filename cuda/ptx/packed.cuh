#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/wgmma.cuh>

// Two 16-bit numbers in a word.

namespace vox::cuda::ptx {

/// `low` and `high`, each rounded to nearest, even on ties. NaN becomes 0x7fff.
template <Operand operand>
__device__ __forceinline__ uint32_t packed(float low, float high) {
  static_assert(operand != Operand::tf32);
  uint32_t word;
  if constexpr (operand == Operand::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

/// The 32 bits that begin in the middle of `word` and end in that of `next`.
__device__ __forceinline__ uint32_t straddling(uint32_t word, uint32_t next) {
  return __byte_perm(word, next, 0x5432);
}

}  // namespace vox::cuda::ptx

#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/wgmma.cuh>

// Words in registers: pairs of 16-bit numbers, and instructions that the compiler does not move. ptxas runs
// out of registers when it moves them.

namespace vox::cuda::ptx {

// ---- Two 16-bit numbers in a word -------------------------------------------------------------------------

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

/// The 32 bits from the middle of `word` to the middle of `next`.
__device__ __forceinline__ uint32_t straddling(uint32_t word, uint32_t next) {
  return __byte_perm(word, next, 0x5432);
}

// ---- What the compiler does not know ----------------------------------------------------------------------

/// The thread's number in its warp, read again here: so the compiler cannot compute dependent values earlier.
__device__ __forceinline__ int lane_here() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
/// x, with its origin hidden from the compiler.
__device__ __forceinline__ float opaque(float x) {
  float same;
  asm volatile("mov.b32 %0, %1;" : "=f"(same) : "f"(x));
  return same;
}

// ---- Stores under a condition -----------------------------------------------------------------------------

// Stores to global memory under a condition that is computed where it is used. (If the compiler sees the
// conditions of a hundred stores, it computes all of them first, and has no registers to keep them.)

/// *to = value if a > b. `to` is aligned to the value's size.
__device__ __forceinline__ void store_if_greater(int a, int b, void* to, uint32_t value) {
  asm volatile("{\n.reg .pred p;\nsetp.gt.s32 p, %0, %1;\n@p st.global.b32 [%2], %3;\n}" ::"r"(a), "r"(b),
               "l"(to), "r"(value)
               : "memory");
}
__device__ __forceinline__ void store_if_greater(int a, int b, void* to, uint16_t value) {
  asm volatile("{\n.reg .pred p;\nsetp.gt.s32 p, %0, %1;\n@p st.global.b16 [%2], %3;\n}" ::"r"(a), "r"(b),
               "l"(to), "h"(value)
               : "memory");
}
__device__ __forceinline__ void store_if_greater(int a, int b, void* to, uint2 value) {
  asm volatile("{\n.reg .pred p;\nsetp.gt.s32 p, %0, %1;\n@p st.global.v2.b32 [%2], {%3, %4};\n}" ::"r"(a),
               "r"(b), "l"(to), "r"(value.x), "r"(value.y)
               : "memory");
}
__device__ __forceinline__ void store_if_greater(int a, int b, void* to, uint4 value) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.gt.s32 p, %0, %1;\n@p st.global.v4.b32 [%2], {%3, %4, %5, %6};\n}" ::"r"(a),
      "r"(b), "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
      : "memory");
}

}  // namespace vox::cuda::ptx

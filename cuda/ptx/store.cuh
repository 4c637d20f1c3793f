#pragma once

#include <cstdint>

// Stores to global memory under a condition that is computed where it is used. (A compiler that sees the
// condition of one store among a hundred of others computes all of them first, and has no room to keep them.)

namespace vox::cuda::ptx {

/// *to = value if a > b. `to` is a multiple of the value's size.
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

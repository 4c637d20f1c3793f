#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/wgmma.cuh>

// Tensor-core instructions of a warp, sm_80 and later.

namespace vox::cuda::ptx {

/// The nearest TF32 number (ties away from zero), as the bits of an f32. NaN stays NaN and Inf stays Inf; a
/// finite x beyond the largest TF32 number becomes Inf.
__device__ __forceinline__ uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

/// The same as seen by the tensor cores, which ignore the lowest 13 bits: those bits are not cleared, which
/// saves half the instructions. (Tensor cores read a NaN whose only fraction bits are those as an infinity.)
__device__ __forceinline__ uint32_t to_tf32_uncut(float x) {
  const uint32_t bits = __float_as_uint(x);
  return fabsf(x) < __uint_as_float(0x7f800000) ? bits + 0x1000 : bits;
}

/// d (16 x 8, f32) += a (16 x 8, TF32) * b (8 x 8, TF32). With row = lane / 4 and column = lane % 4, a lane
/// holds a at (row, column), (row + 8, column), (row, column + 4), (row + 8, column + 4); b at (k = column,
/// n = row), (k = column + 4, n = row); d at (row, 2 column), (row, 2 column + 1), and the same of row + 8.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// d (16 x 8, f32) += a (16 x 16) * b (16 x 8), bf16 or f16, two to a word. With row = lane / 4 and pair =
/// 2 (lane % 4), a lane holds a at (row, pair), (row + 8, pair), (row, pair + 8), (row + 8, pair + 8), each
/// with the next column; b at (k = pair, n = row), (k = pair + 8, n = row), each with the next k; d as above.
template <Operand operand>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  static_assert(operand != Operand::tf32);
  if constexpr (operand == Operand::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace vox::cuda::ptx

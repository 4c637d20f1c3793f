#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/wgmma.cuh>

// Operands of the tensor-core instructions of a warp (mma.cuh) from shared memory, and zeros there; sm_80 and
// later. PTX ISA, "ldmatrix" and "cp.async".

namespace vox::cuda::ptx {

/// Four 8 x 8 matrices of 16-bit numbers, whose rows are 16 bytes anywhere in shared memory: lane i gives the
/// address of row i % 8 of matrix i / 8, and gets word i % 4 of row i / 4 of each. (Or 8 x 4 matrices of
/// 32-bit numbers.)
__device__ __forceinline__ void load_matrices(uint32_t (&words)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address));
}

/// The same, transposed: lane i gets column i / 4 of rows 2 (i % 4) and the next.
__device__ __forceinline__ void load_transposed_matrices(uint32_t (&words)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

/// cp_async_16 (copies.cuh), or 16 bytes of zeros; then `from_global` is not read, but must be an address of
/// global memory.
__device__ __forceinline__ void cp_async_16_or_zeros(uint32_t to_shared, const void* from_global, bool copy) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from_global),
               "r"(copy ? 16 : 0)
               : "memory");
}

/// mma_m16n8k16 if the condition holds, which is the same for all lanes. Without a branch, so that loads may
/// move across it.
template <Operand operand>
__device__ __forceinline__ void mma_m16n8k16_if(bool condition, float (&d)[4], const uint32_t (&a)[4],
                                                uint32_t b0, uint32_t b1) {
  static_assert(operand != Operand::tf32);
  if constexpr (operand == Operand::bf16)
    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %10, 0;\n"
        "@p mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
        "%9}, "
        "{%0, %1, %2, %3};\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(int{condition}));
  else
    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %10, 0;\n"
        "@p mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(int{condition}));
}

}  // namespace vox::cuda::ptx

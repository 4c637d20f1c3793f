#pragma once

#include <cstdint>

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

/// cp_async_16 (copies.cuh), or 16 bytes of zeros; then `from_global` is not read.
__device__ __forceinline__ void cp_async_16_or_zeros(uint32_t to_shared, const void* from_global, bool copy) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from_global),
               "r"(copy ? 16 : 0)
               : "memory");
}

}  // namespace vox::cuda::ptx

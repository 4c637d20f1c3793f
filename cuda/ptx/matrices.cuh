#pragma once

#include <cstdint>

// Matrices in shared memory for mma_m16n8k16. sm_80 and later.

namespace vox::cuda::ptx {

/// Four 8 x 8 matrices of 16-bit numbers, transposed. Their rows are 16 bytes anywhere: lane i gives the
/// address of row i % 8 of matrix i / 8, and gets column i / 4 of rows 2 (i % 4) and the next.
__device__ __forceinline__ void load_transposed_matrices(uint32_t (&words)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

/// The same, or 16 bytes of zeros; then `from_global` is not read, but must be an address of global memory.
__device__ __forceinline__ void cp_async_16_or_zeros(void* to_shared, const void* from_global, bool copy) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(to_shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from_global), "r"(copy ? 16 : 0)
               : "memory");
}

}  // namespace vox::cuda::ptx

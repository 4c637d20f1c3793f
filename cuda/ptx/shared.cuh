#pragma once

#include <cstdint>

// Shared memory by its own 32-bit addresses.

namespace vox::cuda::ptx {

/// The byte address in shared memory of *p.
__device__ __forceinline__ uint32_t shared_address_of(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// The word at `address` + `offset`. The compiler does not move the load across wgmma and barriers.
template <int offset>
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(word) : "r"(address), "n"(offset));
  return word;
}

/// Four 8 x 8 matrices of 16-bit numbers, whose rows are 16 bytes anywhere: lane i gives the address of row
/// i % 8 of matrix i / 8, and gets word i % 4 of row i / 4 of each. (Or 8 x 4 matrices of 32-bit numbers.)
/// sm_80 and later, like the next. PTX ISA, "ldmatrix".
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

/// The words at two addresses, or zeros if `condition` is not 0.
__device__ __forceinline__ void load_shared_unless(uint32_t condition, uint32_t& a, uint32_t a_address,
                                                   uint32_t& b, uint32_t b_address) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.u32 p, %2, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n@p ld.shared.u32 %0, [%3];\n"
      "@p ld.shared.u32 %1, [%4];\n}"
      : "=&r"(a), "=&r"(b)
      : "r"(condition), "r"(a_address), "r"(b_address));
}

}  // namespace vox::cuda::ptx

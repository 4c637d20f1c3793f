#pragma once

#include <cstdint>

// Shared memory by its own 32-bit addresses.

namespace vox::cuda::ptx {

/// The address of what lies in shared memory, in bytes.
__device__ __forceinline__ uint32_t shared_address_of(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// The word at `address` + `offset`. It stays in its place among wgmma and barriers.
template <int offset>
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(word) : "r"(address), "n"(offset));
  return word;
}

}  // namespace vox::cuda::ptx

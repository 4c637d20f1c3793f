#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace vox::cuda {

/// An integer of the size of T, for kernels that only move elements.
template <class T>
using bits_t = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

/// n elements that move together, by default 16 bytes.
template <class T, int n = 16 / sizeof(T)>
struct alignas(std::min<size_t>(16, n * sizeof(T))) Packet {
  static constexpr int size = n;
  T lane[n];
};

/// Whether a packet of n elements may lie at p.
template <class T, int n = 16 / sizeof(T)>
bool is_packet_aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % alignof(Packet<T, n>) == 0;
}

/// The value that lane ^ mask of this warp has for a. All lanes of `group` call this.
template <class A>
__device__ A shuffle_xor(A a, int mask, unsigned group = 0xffffffff) {
  uint32_t words[(sizeof(A) + 3) / 4] = {};
  std::memcpy(words, &a, sizeof(A));
#pragma unroll
  for (uint32_t& word : words) word = __shfl_xor_sync(group, word, mask);
  std::memcpy(&a, words, sizeof(A));
  return a;
}

}  // namespace vox::cuda

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vox::cuda {

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

/// Stores a packet if the condition holds. Without a branch, so that loads of several packets can be under
/// way.
template <class T, int n>
__device__ __forceinline__ void store_if(bool condition, T* to, const Packet<T, n>& packet) {
  constexpr int bytes = n * sizeof(T);
  uint32_t word[4] = {};
  std::memcpy(word, &packet, bytes);
  const uint32_t holds = condition;
  if constexpr (bytes == 16)
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.v4.b32 [%1], {%2, %3, %4, %5};\n}" ::"r"(
            holds),
        "l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
        : "memory");
  else if constexpr (bytes == 8)
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.v2.b32 [%1], {%2, %3};\n}" ::"r"(holds),
        "l"(to), "r"(word[0]), "r"(word[1])
        : "memory");
  else if constexpr (bytes == 4)
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.b32 [%1], %2;\n}" ::"r"(holds),
                 "l"(to), "r"(word[0])
                 : "memory");
  else
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.b16 [%1], %2;\n}" ::"r"(holds),
                 "l"(to), "h"(static_cast<uint16_t>(word[0]))
                 : "memory");
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

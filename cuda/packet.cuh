#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

}  // namespace vox::cuda

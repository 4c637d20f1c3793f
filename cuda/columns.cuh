#pragma once

#include <voxgrad/cuda/packet.cuh>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

// Results of one thread that share their place along H and W, so that it computes what depends on these once.
// A result is one element, or a packet of neighbours along W.

namespace vox::cuda {

/// The results of one thread: [begin, end) along D at (h, w) of a plane.
struct Column {
  int64_t plane, begin, end, h, w;
};

/// Cuts results of (planes, D, H, W) into columns: enough of them to fill any GPU, and none so long that its
/// thread is still busy when the others have ended. Neighbours are neighbours along W.
class Columns {
 public:
  Columns(int64_t planes, int64_t d, int64_t h, int64_t w) : planes_(planes), d_(d), h_(h), w_(w) {
    constexpr int64_t enough = int64_t{1} << 19, longest = 32;
    length_ = std::clamp<int64_t>(planes * d * h * w / enough, 1, longest);
    parts_ = (d + length_ - 1) / length_;
  }
  int64_t count() const { return planes_ * parts_ * h_ * w_; }
  __device__ Column operator[](int64_t n) const {
    const int64_t row = n / w_, slice = row / h_, plane = slice / parts_;
    const int64_t begin = (slice - plane * parts_) * length_;
    return {plane, begin, begin + length_ < d_ ? begin + length_ : d_, row - slice * h_, n - row * w_};
  }

 private:
  int64_t planes_, d_, h_, w_, length_, parts_;
};

/// Stores a packet in one instruction. The compiler splits an assignment of packets whose lanes it has
/// computed one by one.
template <class T, int n>
__device__ void store_packet(const Packet<T, n>& packet, T* to) {
  static_assert(n == 1 || sizeof(T) < 8);
  constexpr int bytes = n * sizeof(T);
  if constexpr (n == 1 || bytes < 4) {
    *reinterpret_cast<Packet<T, n>*>(to) = packet;
  } else {
    uint32_t word[bytes / 4] = {};
#pragma unroll
    for (int i = 0; i < n; ++i) {
      constexpr int size = sizeof(T);
      word[i * size / 4] |= uint32_t{std::bit_cast<bits_t<T>>(packet.lane[i])} << i * size % 4 * 8;
    }
    if constexpr (bytes == 16)
      __stwb(reinterpret_cast<uint4*>(to), uint4{word[0], word[1], word[2], word[3]});
    else if constexpr (bytes == 8)
      __stwb(reinterpret_cast<uint2*>(to), uint2{word[0], word[1]});
    else
      __stwb(reinterpret_cast<uint32_t*>(to), word[0]);
  }
}

/// Calls run(an integral_constant): the number of elements in the packets of a dense result at `y`, whose
/// rows have `width`. It is 1 unless whole packets of 16 bytes fill the rows; and in the rare cases that need
/// no kernels of their own: elements of 8 bytes, and planes of which Int, the type of indices, has 64 bits.
template <class Int, class T, class Run>
void with_packet_size(const T* y, int64_t width, Run run) {
  constexpr int size = sizeof(T) < 8 && sizeof(Int) < 8 ? 16 / sizeof(T) : 1;
  if (width % size == 0 && is_packet_aligned<T, size>(y))
    run(std::integral_constant<int, size>());
  else
    run(std::integral_constant<int, 1>());
}

}  // namespace vox::cuda

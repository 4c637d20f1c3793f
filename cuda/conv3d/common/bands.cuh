#pragma once

// f32 numbers of any size as f16 numbers, or as pairs of them.
//
// Note [Bands]
//   x * scale = high + low, two f16 numbers, has all 22 bits if it lies in [2^-14, 2^15), and high alone 11;
//   the low one is stored times 2^11. That is a band, 29 powers of two. The first band of a tensor begins at
//   its largest finite number, and others follow below it. A kernel multiplies the numbers of one band at a
//   time, with zeros in place of the others, and undoes the scale: of pairs when sums of a few products move
//   to f32, else where the next band begins and in the end. Nearly all data meet one band only. Where there
//   are more, what a block has loaded is multiplied again, in the bands that it holds. So numbers of any size
//   have all their bits; only Inf and NaN have no parts, and become NaN in pairs. (Below 2^-100 of a first
//   band at 1, scales would exceed f32, and the last band has fewer bits.)

#include <voxgrad/cuda/conv3d/common/operands.cuh>

#include <cstdint>

namespace vox::cuda::conv {

/// Sizes of the finite numbers of a tensor, as bits of an f32, whose order is that of integers. 0: no number.
struct SizeRange {
  unsigned largest;
  unsigned not_least;  ///< ~ the least of the largest of 8 channels of a cell, 0 aside
};

/// The bands of a tensor.
class Bands {
 public:
  static constexpr int width = 29, most = 16;

  __device__ __forceinline__ explicit Bands(unsigned largest) : top_(static_cast<int>(largest >> 23)) {}

  /// Whether sums and products of scaled numbers stay within f32.
  static __device__ __forceinline__ bool hold(unsigned largest) {
    return F16x3::range_holds(__uint_as_float(largest));
  }
  /// The power of two that numbers of a band are multiplied by.
  __device__ __forceinline__ float scale(int band) const {
    return __uint_as_float(static_cast<unsigned>(min(268 - top_ + width * band, 253)) << 23);
  }
  /// Those that a tensor with this range has.
  __device__ __forceinline__ int count(const SizeRange& range) const { return of(~range.not_least) + 1; }
  /// The last one, whose scale is an f32.
  __device__ __forceinline__ int last() const { return max(top_ - 15, 0) / width; }
  /// The band of a number of this size; of Inf and NaN the first.
  __device__ __forceinline__ int of(unsigned size) const {
    return min(max(top_ - static_cast<int>(size >> 23), 0) / width, last());
  }

 private:
  int top_;  // exponent bits of the largest number
};

/// The f16 parts of scaled numbers, in place: of 8 f32 numbers in two granules the first gets the high parts.
__device__ __forceinline__ void store_parts(const float (&scaled)[8], uint4& high, uint4& low) {
  alignas(16) float16 bits[2][8];
#pragma unroll
  for (int part = 0; part < 2; ++part)
#pragma unroll
    for (int c = 0; c < 8; ++c) bits[part][c] = F16x3::part(scaled[c], part);
  high = *reinterpret_cast<const uint4*>(bits[0]), low = *reinterpret_cast<const uint4*>(bits[1]);
}
__device__ __forceinline__ void load_eight(float (&x)[8], const uint4& first, const uint4& second) {
  *reinterpret_cast<uint4*>(x) = first, *reinterpret_cast<uint4*>(x + 4) = second;
}

}  // namespace vox::cuda::conv

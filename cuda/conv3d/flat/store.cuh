#pragma once

// The output of kernel.cuh: sums are stored from registers, where they have the order of the tensor cores, as
// runs of a channel.

#include <voxgrad/cuda/conv3d/flat/window.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

namespace vox::cuda::conv::flat {

/// Transposes 4 x 4 words among 4 lanes that differ in their two lowest bits: word i of lane j becomes word j
/// of lane i.
__device__ __forceinline__ void transpose_among_4(uint32_t (&word)[4], int lane) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const uint32_t theirs = __shfl_xor_sync(0xffffffff, upper ? word[i] : word[i | bit], bit);
      (upper ? word[i] : word[i | bit]) = theirs;
    }
  }
}

/// Writes a warp's sums of 32 neighbouring positions of the flat plane, from `first_position` on, 8 channels
/// at a time. They come in the order of wgmma's accumulators, in 4 blocks of 8 positions: a lane holds
/// position lane / 4 of each block, and channels lane % 4 * 2 and the next.
///
/// So the 4 lanes of a position would write to 4 channels. They exchange their sums, and a warp writes 32
/// positions of a channel at once.
class RunStore {
 public:
  /// Writes `channels` channels, which begin at `output` in the first image.
  __device__ __forceinline__ RunStore(float* output, int channels, int first_position, int lane,
                                      const Product& p) {
    const Place at = place_of(first_position + lane % 4 * 8 + lane / 4, p);
    at_ = output +
          (int64_t{at.image} * p.groups * p.out_per_group * p.out_channel + int64_t{at.h} * p.w.cells + at.w);
    channels_ = at.image < p.batch && at.h < p.h.cells && at.w < p.w.cells ? channels : 0;
    lane_ = lane;
  }

  /// Writes channels n to n + 7, `offset` elements on. `sum(block, e)` is the lane's own sum of the block of
  /// positions, for the first or second of its two channels.
  template <class Sum>
  __device__ __forceinline__ void eight(int n, int64_t offset, const Product& p, Sum sum) const {
    float* to = at_ + offset + n * p.out_channel;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      uint32_t word[4];
#pragma unroll
      for (int block = 0; block < 4; ++block) word[block] = __float_as_uint(sum(block, e));
      transpose_among_4(word, lane_);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ptx::store_if_greater(channels_, n + 2 * i + e, to + (2 * i + e) * p.out_channel, word[i]);
    }
  }

 private:
  float* at_;     // of the lane's position, in its first channel
  int channels_;  // channels to write; 0 if the position is not an output
  int lane_;
};

}  // namespace vox::cuda::conv::flat

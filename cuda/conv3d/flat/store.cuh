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
/// positions of a channel at once; of 16 bits, 16 words of two positions of two channels.
template <class Storage>
class RunStore {
 public:
  /// Writes `channels` channels, which begin at `output` in the first image.
  __device__ __forceinline__ RunStore(Storage* output, int channels, int first_position, int lane,
                                      const Product& p)
      : lane_(lane) {
    const auto offset = [&](const Place& at) {
      return int64_t{at.image} * p.groups * p.out_per_group * p.out_channel +
             (int64_t{at.h} * p.h.out_step + p.h.out_base) * p.out_w + (at.w * p.w.out_step + p.w.out_base);
    };
    const auto inside = [&](const Place& at) {
      return at.image < p.batch && at.h < p.h.cells && at.w < p.w.cells;
    };
    if constexpr (pairs) {
      first_position += lane % 4 * 8 + lane / 8 * 2;
      const Place first = place_of(first_position, p), second = place_of(first_position + 1, p);
      const int64_t distance = offset(second) - offset(first);
      const int odd = lane / 4 % 2;
      at_ = output + offset(first) + odd * p.out_channel;
      const bool word = inside(first) && inside(second) && distance == 1 && p.out_channel % 2 == 0 &&
                        int64_t{p.out_h} * p.out_w % 2 == 0 && reinterpret_cast<uintptr_t>(at_) % 4 == 0;
      to_second_ = distance;
      channels_ = word ? channels - odd : 0;
      first_channels_ = !word && inside(first) ? channels - odd : 0;
      second_channels_ = !word && inside(second) ? channels - odd : 0;
      all_words_ = __all_sync(0xffffffff, first_channels_ == 0 && second_channels_ == 0);
    } else {
      const Place at = place_of(first_position + lane % 4 * 8 + lane / 4, p);
      at_ = output + offset(at);
      channels_ = inside(at) ? channels : 0;
    }
  }

  /// Writes channels n to n + 7, `offset` elements on. `sum(block, e)` is the lane's own sum of the block of
  /// positions, for the first or second of its two channels.
  template <class Sum>
  __device__ __forceinline__ void eight(int n, int64_t offset, const Product& p, Sum sum) const {
    Storage* to = at_ + offset + n * p.out_channel;
    if constexpr (pairs) {
      uint32_t word[4];
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        const uint32_t mine = Storage(sum(block, 0)).bits | uint32_t{Storage(sum(block, 1)).bits} << 16;
        const uint32_t theirs = __shfl_xor_sync(0xffffffff, mine, 4);  // of the neighbouring position
        word[block] = __byte_perm(mine, theirs, lane_ & 4 ? 0x3276 : 0x5410);
      }
      transpose_among_4(word, lane_);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ptx::store_if_greater(channels_, n + 2 * i, to + 2 * i * p.out_channel, word[i]);
      if (all_words_) return;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Storage* const at = to + 2 * i * p.out_channel;
        ptx::store_if_greater(first_channels_, n + 2 * i, at, static_cast<uint16_t>(word[i]));
        ptx::store_if_greater(second_channels_, n + 2 * i, at + to_second_,
                              static_cast<uint16_t>(word[i] >> 16));
      }
    } else {
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
  }

 private:
  static constexpr bool pairs = sizeof(Storage) == 2;

  Storage* at_;  // of the lane's position, or the first of its two, in its first channel
  int lane_;
  int channels_;  // channels to write (for pairs: as words); 0 if the position is not an output
  int first_channels_ = 0, second_channels_ = 0;  // for pairs that are not words: of each position
  int64_t to_second_ = 0;                         // elements from the first position of a pair
  bool all_words_ = true;                         // of the warp
};

}  // namespace vox::cuda::conv::flat

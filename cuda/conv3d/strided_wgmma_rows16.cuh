#pragma once

// Rows of 16-bit numbers (strided_wgmma_rows.cuh): how sums are rounded and staged, and copied to the output.
// A cell's two phases along w are a word. Rows may begin in the middle of one; where they lie straight, they
// are copied by the words of the output, made of two staged ones if need be.

#include <voxgrad/cuda/conv3d/strided_wgmma_shared.cuh>
#include <voxgrad/cuda/ptx/lane.cuh>
#include <voxgrad/cuda/ptx/packed.cuh>

#include <type_traits>

namespace vox::cuda::strided {

template <class Block>
struct Rows16 {
  using Operand = typename Block::Operand;
  static constexpr int slots = Block::slots, sums = Block::sums, pitch = Block::pitch;

  /// Where the elements of cells lane and lane + 32 of a span of 64 go, in one channel at phases (0, 0) along
  /// d and h.
  struct Span {
    bool straight;       // one row: elements lie one behind the other
    int elements;        // that exist, if straight
    uint32_t offset[2];  // bytes; if straight, the first is that of the first element
    uint32_t exists;     // bit 8 i + 4 (phase along w) + 2 d + h: at phases (d, h)
  };
  static __device__ __forceinline__ Span span_of(int d, const Place& first, const StridedPlan& p) {
    Span s;
    const int first_w = first.column * p.w.out_step;
    s.straight = first.column + 64 <= p.pitch;
    s.elements = min(min(64, p.w.cells - first.column) * p.w.out_step, p.w.out - first_w);
    s.offset[0] = offset_of(d, first.row, first_w, p) * 2;
    s.exists = s.elements > 0 ? rows_of(d, first.row, p) : 0;
    if (s.straight) return s;
    s.exists = 0;
    const int lane = ptx::lane_here();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Place at = place_of(first.column + lane + 32 * i, p);
      at.row += first.row;
      const int w = at.column * p.w.out_step;
      s.offset[i] = offset_of(d, at.row, w, p) * 2;
      const uint32_t here = at.column < p.w.cells ? rows_of(d, at.row, p) : 0;
      if (w < p.w.out) s.exists |= here << 8 * i;
      if (p.w.out_step == 2 && w + 1 < p.w.out) s.exists |= here << (8 * i + 4);
    }
    return s;
  }

  /// Sums of one pair of phases to [channel][cell][phase along w], the bias where a phase has no taps; where
  /// cells step by one there is one phase.
  template <int r>
  static __device__ __forceinline__ void stage_row(const float (&sum)[slots * sums], unsigned char* staging,
                                                   const float* bias, const StridedPlan& p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int channel = lane % 4 * 2, cell = warp * 16 + lane / 4;
    const float* const first = sum + (slots > 1 ? r * 2 * sums : 0);
    if (p.w.out_step == 1) {
      uint16_t* const at = reinterpret_cast<uint16_t*>(staging) + channel * pitch * 2 + cell;
#pragma unroll
      for (int i = 0; i < sums; ++i)
        at[(i / 4 * 8 + i % 2) * pitch * 2 + i / 2 % 2 * 8] =
            static_cast<uint16_t>(ptx::packed<Operand::operand>(first[i], 0));
    } else {
      uint32_t* const at = reinterpret_cast<uint32_t*>(staging) + channel * pitch + cell;
      const auto words = [&](auto swap) {
#pragma unroll
        for (int i = 0; i < sums; ++i) {
          const int of = i / 4 * 8 + i % 2;
          const float second = slots > 1 ? first[sums + i] : bias[channel + of];
          at[of * pitch + i / 2 % 2 * 8] = swap ? ptx::packed<Operand::operand>(second, first[i])
                                                : ptx::packed<Operand::operand>(first[i], second);
        }
      };
      if (slots > 1 || p.phase_w[0] == 0)
        words(std::false_type{});
      else
        words(std::true_type{});
    }
  }

  /// Calls copy(channels) until `count` of them are copied, four together so that loads overlap.
  template <class F>
  static __device__ __forceinline__ void by_fours(int count, F copy) {
#pragma unroll 1
    for (; count >= 4; count -= 4) copy(std::integral_constant<int, 4>{});
#pragma unroll 1
    for (; count > 0; --count) copy(std::integral_constant<int, 1>{});
  }

  static __device__ __forceinline__ uint32_t bias_twice(const unsigned char* at) {
    const float value = *reinterpret_cast<const float*>(at);
    return ptx::packed<Operand::operand>(value, value);
  }

  /// Writes `count` channels of a straight span, every fourth from `channel` on. `odd`: it begins in the
  /// middle of a word of the output. `staged` and `bias` are those of the first in shared memory.
  template <bool alive, bool odd>
  static __device__ __forceinline__ void copy_straight(const unsigned char* staged, const float* bias,
                                                       int elements, char* channel, int64_t channel_bytes,
                                                       int count) {
    const int lane =
        ptx::lane_here();  // else addresses for all cases are kept in registers that are not there
    const bool wanted[2]{2 * lane + odd + 1 < elements, 2 * lane + odd + 65 < elements};
    char* to = channel + (2 * lane + odd) * 2;
    const unsigned char* from = alive ? staged + lane * 4 : reinterpret_cast<const unsigned char*>(bias);
    constexpr int next = alive ? 4 * pitch * 4 : 16;
    by_fours(count, [&](auto channels) {
      uint32_t v[channels][2];
#pragma unroll
      for (int c = 0; c < channels; ++c, from += next) {
        const uint32_t* const word = reinterpret_cast<const uint32_t*>(from);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          v[c][i] = !alive ? bias_twice(from)
                    : odd  ? ptx::straddling(word[32 * i], word[32 * i + 1])
                           : word[32 * i];
      }
#pragma unroll
      for (int c = 0; c < channels; ++c, to += channel_bytes)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (wanted[i]) *reinterpret_cast<uint32_t*>(to + 128 * i) = v[c][i];
    });
    // The elements at the ends that are no whole words, with a lane for each channel.
    const auto single = [&](int element) {
      if (lane >= count) return;
      const unsigned char* const at =
          (alive ? staged + element * 2 : reinterpret_cast<const unsigned char*>(bias)) + lane * next;
      *reinterpret_cast<uint16_t*>(channel + lane * channel_bytes + element * 2) =
          alive ? *reinterpret_cast<const uint16_t*>(at) : static_cast<uint16_t>(bias_twice(at));
    };
    if (odd && elements > 0) single(0);
    if (elements > odd && (elements - odd) % 2) single(elements - 1);
  }

  /// The same of a span that runs over the end of a row.
  template <bool alive>
  static __device__ __forceinline__ void copy_bent(const unsigned char* staged, const float* bias,
                                                   const Span& span, int shift, char* channel,
                                                   int64_t channel_bytes, int count, bool words) {
    const int lane = ptx::lane_here();
    bool low[2], high[2], whole[2];
    char* to[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i] = channel + span.offset[i];
      low[i] = span.exists >> (8 * i + shift) & 1;
      high[i] = span.exists >> (8 * i + 4 + shift) & 1;
      whole[i] = low[i] && high[i] && reinterpret_cast<uintptr_t>(to[i]) % 4 == 0;
      if (whole[i]) low[i] = high[i] = false;
    }
    const unsigned char* from =
        alive ? staged + lane * (words ? 4 : 2) : reinterpret_cast<const unsigned char*>(bias);
    by_fours(count, [&](auto channels) {
      uint32_t v[channels][2];
#pragma unroll
      for (int c = 0; c < channels; ++c, from += alive ? 4 * pitch * 4 : 16)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          v[c][i] = !alive  ? bias_twice(from)
                    : words ? *reinterpret_cast<const uint32_t*>(from + 128 * i)
                            : *reinterpret_cast<const uint16_t*>(from + 64 * i);
#pragma unroll
      for (int c = 0; c < channels; ++c)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (whole[i]) *reinterpret_cast<uint32_t*>(to[i]) = v[c][i];
          if (low[i]) *reinterpret_cast<uint16_t*>(to[i]) = static_cast<uint16_t>(v[c][i]);
          if (high[i]) *reinterpret_cast<uint16_t*>(to[i] + 2) = static_cast<uint16_t>(v[c][i] >> 16);
          to[i] += channel_bytes;
        }
    });
  }

  /// Writes `count` channels of a span, every fourth from `channel` on: what is staged, or the bias alone.
  template <bool alive>
  static __device__ __forceinline__ void copy_row(const unsigned char* staged, const float* bias,
                                                  const Span& span, int shift, char* channel,
                                                  int64_t channel_bytes, int count, const StridedPlan& p) {
    if (!span.straight) {
      copy_bent<alive>(staged, bias, span, shift, channel, channel_bytes, count, p.w.out_step == 2);
      return;
    }
    if (!(span.exists >> shift & 1)) return;
    char* const first = channel + span.offset[0];
    if (reinterpret_cast<uintptr_t>(first) % 4 == 0)
      copy_straight<alive, false>(staged, bias, span.elements, first, channel_bytes, count);
    else
      copy_straight<alive, true>(staged, bias, span.elements, first, channel_bytes, count);
  }
};

}  // namespace vox::cuda::strided

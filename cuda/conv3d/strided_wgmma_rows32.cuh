#pragma once

// Rows of f32 (strided_wgmma_rows.cuh): how sums are staged, and copied to the output.

#include <voxgrad/cuda/conv3d/strided_wgmma_shared.cuh>
#include <voxgrad/cuda/ptx/lane.cuh>

namespace vox::cuda::strided {

template <class Block>
struct Rows32 {
  static constexpr int slots = Block::slots, per_row = Block::per_row, sums = Block::sums;
  static constexpr int pitch = Block::pitch;

  /// Where a lane's elements x = lane, lane + 32 ... of a span of 64 cells go, in one channel at phases (0,
  /// 0) along d and h.
  struct Span {
    bool straight;       // one row: elements lie one behind the other
    int elements;        // that exist, if straight
    uint32_t offset[4];  // bytes; if straight, the first is that of the first element
    uint32_t exists;     // bit 4 i + 2 d + h: at phases (d, h); if straight, bits of all elements
  };
  static __device__ __forceinline__ Span span_of(int d, const Place& first, const StridedPlan& p) {
    Span s;
    const int first_w = first.column * p.w.out_step;
    s.straight = first.column + 64 <= p.pitch;
    s.elements = min(min(64, p.w.cells - first.column) * p.w.out_step, p.w.out - first_w);
    s.offset[0] = offset_of(d, first.row, first_w, p) * 4;
    s.exists = rows_of(d, first.row, p);
    if (s.straight) return s;
    s.exists = 0;
    const int lane = ptx::lane_here();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int x = lane + 32 * i, cell = p.w.out_step == 2 ? x / 2 : x;
      Place at = place_of(first.column + cell, p);
      at.row += first.row;
      const int w = at.column * p.w.out_step + (p.w.out_step == 2 ? x % 2 : 0);
      s.offset[i] = offset_of(d, at.row, w, p) * 4;
      if (cell < 64 && at.column < p.w.cells && w < p.w.out) s.exists |= rows_of(d, at.row, p) << 4 * i;
    }
    return s;
  }

  /// Sums of one pair of phases to [channel][cell][phase along w].
  template <int r>
  static __device__ __forceinline__ void stage_row(const float (&sum)[slots * sums], unsigned char* staging,
                                                   const float*, const StridedPlan&) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    float* const at =
        reinterpret_cast<float*>(staging) + lane % 4 * 2 * pitch + (warp * 16 + lane / 4) * per_row;
#pragma unroll
    for (int j = 0; j < sums / 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float* const cell = at + (j * 8 + e % 2) * pitch + e / 2 * 8 * per_row;
        if constexpr (per_row == 2)
          *reinterpret_cast<float2*>(cell) =
              make_float2(sum[(r * 2) * sums + j * 4 + e], sum[(r * 2 + 1) * sums + j * 4 + e]);
        else
          *cell = sum[j * 4 + e];
      }
  }

  /// What the elements of a span are: sums (and biases) of all of them, of every other, or the bias alone.
  enum class Source { all, one, bias };

  /// Writes `count` channels of a span, every fourth from `channel` on. `staged` and `bias` are those of the
  /// first in shared memory.
  template <Source source, bool straight>
  static __device__ __forceinline__ void copy(const unsigned char* staged, const float* bias,
                                              const Span& span, int shift, char* channel,
                                              int64_t channel_bytes, int count, const StridedPlan& p) {
    constexpr int elements = source == Source::all ? 2 * per_row : 4;
    const int lane =
        ptx::lane_here();  // else addresses for all cases are kept in registers that are not there
    bool wanted[elements];
    char* to[elements];
#pragma unroll
    for (int i = 0; i < elements; ++i) {
      wanted[i] = straight ? (span.exists >> shift & 1) && lane + 32 * i < span.elements
                           : span.exists >> (4 * i + shift) & 1;
      to[i] = channel + (straight ? span.offset[0] + lane * 4 : span.offset[i]);
    }
    // Where each comes from, and the distances to the next element and to the next channel.
    const unsigned char* from = reinterpret_cast<const unsigned char*>(bias);
    int next = 0, next_channel = 16;
    if constexpr (source == Source::all) from = staged + lane * 4, next = 128, next_channel = 4 * pitch * 4;
    if constexpr (source == Source::one) {
      const int cell = p.w.out_step == 2 ? lane / 2 : lane;
      if (p.w.out_step == 1 || lane % 2 == p.phase_w[0])
        from = staged + cell * per_row * 4, next = 128 * per_row / p.w.out_step, next_channel = 4 * pitch * 4;
    }
    const auto value = [&](int i) {
      if constexpr (source == Source::all) return *reinterpret_cast<const float*>(from + i * 128);
      return *reinterpret_cast<const float*>(from + (i < 2 || p.w.out_step == 2 ? i * next : 0));
    };
#pragma unroll 1
    for (int k = 0; k < count; k += 2) {  // two at a time, so that loads overlap
      float v[2][elements];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int i = 0; i < elements; ++i) v[c][i] = source == Source::bias && i > 0 ? v[c][0] : value(i);
        from += next_channel;
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (c == 1 && k + 1 == count) break;
#pragma unroll
        for (int i = 0; i < elements; ++i)
          if (wanted[i]) *reinterpret_cast<float*>(straight ? to[0] + 128 * i : to[i]) = v[c][i];
#pragma unroll
        for (int i = 0; i < (straight ? 1 : elements); ++i) to[i] += channel_bytes;
      }
    }
  }

  /// The same of all kinds: sums, or the bias alone.
  template <bool alive>
  static __device__ __forceinline__ void copy_row(const unsigned char* staged, const float* bias,
                                                  const Span& span, int shift, char* channel,
                                                  int64_t channel_bytes, int count, const StridedPlan& p) {
    const auto from = [&]<Source source>() {
      if (span.straight)
        copy<source, true>(staged, bias, span, shift, channel, channel_bytes, count, p);
      else
        copy<source, false>(staged, bias, span, shift, channel, channel_bytes, count, p);
    };
    if constexpr (!alive)
      from.template operator()<Source::bias>();
    else if (p.w.out_step == per_row)
      from.template operator()<Source::all>();
    else
      from.template operator()<Source::one>();
  }
};

}  // namespace vox::cuda::strided

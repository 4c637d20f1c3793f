#pragma once

// Results of the strided kernels from registers to rows of the output, through shared memory, so that a warp
// writes 64 cells of a channel at once.

#include <voxgrad/cuda/conv3d/strided/block.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda::conv::strided {

// ---- Rows of f32 ------------------------------------------------------------------------------------------

template <class Block>
struct Rows32 {
  static constexpr int slots = Block::slots, per_row = Block::per_row, sums = Block::sums;
  static constexpr int pitch = Block::pitch;

  /// Where a lane's elements x = lane, lane + 32 ... of a span of 64 cells are written, in one channel at
  /// phases (0, 0) along d and h.
  struct Span {
    bool straight;       // one row: elements lie one behind the other
    int elements;        // that exist, if straight
    uint32_t offset[4];  // bytes; if straight, the first is that of the first element
    uint32_t exists;     // bit 4 i + 2 d + h: at phases (d, h); if straight, bits of all elements
  };
  static __device__ __forceinline__ Span span_of(int d, const Place& first, const Plan& p) {
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

  /// Stages the sums of one pair of phases as [channel][cell][phase along w].
  template <int r>
  static __device__ __forceinline__ void stage_row(const float (&sum)[slots * sums], unsigned char* staging,
                                                   const float*, const Plan&) {
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

  /// The elements of a span: sums (and biases) at both phases, at one phase, or the bias alone.
  enum class Source { all, one, bias };

  /// Writes `count` channels of a span, every fourth from `channel` on. `staged` and `bias` are those of the
  /// first in shared memory.
  template <Source source, bool straight>
  static __device__ __forceinline__ void copy(const unsigned char* staged, const float* bias,
                                              const Span& span, int shift, char* channel,
                                              int64_t channel_bytes, int count, const Plan& p) {
    constexpr int elements = source == Source::all ? 2 * per_row : 4;
    const int lane =
        ptx::lane_here();  // otherwise the compiler keeps addresses for all cases, and runs out of registers
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

  /// The same for any source: sums, or the bias alone.
  template <bool alive>
  static __device__ __forceinline__ void copy_row(const unsigned char* staged, const float* bias,
                                                  const Span& span, int shift, char* channel,
                                                  int64_t channel_bytes, int count, const Plan& p) {
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

// ---- Rows of 16-bit numbers -------------------------------------------------------------------------------

// A cell's two phases along w are a word, and rows may begin in the middle of one. A span within one row is
// copied by the words of the output, each made of two staged ones if need be.

template <class Block>
struct Rows16 {
  using Operand = typename Block::Operand;
  static constexpr int slots = Block::slots, sums = Block::sums, pitch = Block::pitch;

  /// Where the elements of cells lane and lane + 32 of a span of 64 are written, in one channel at phases (0,
  /// 0) along d and h.
  struct Span {
    bool straight;       // one row: elements lie one behind the other
    int elements;        // that exist, if straight
    uint32_t offset[2];  // bytes; if straight, the first is that of the first element
    uint32_t exists;     // bit 8 i + 4 (phase along w) + 2 d + h: at phases (d, h)
  };
  static __device__ __forceinline__ Span span_of(int d, const Place& first, const Plan& p) {
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

  /// Stages the sums of one pair of phases as [channel][cell][phase along w], with the bias where a phase has
  /// no taps. With stride 1 along w there is one phase.
  template <int r>
  static __device__ __forceinline__ void stage_row(const float (&sum)[slots * sums], unsigned char* staging,
                                                   const float* bias, const Plan& p) {
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
        ptx::lane_here();  // otherwise the compiler keeps addresses for all cases, and runs out of registers
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
    // The elements at the ends that are not whole words, with a lane for each channel.
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

  /// The same for a span that continues beyond the end of a row.
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
                                                  int64_t channel_bytes, int count, const Plan& p) {
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

template <class Block>
using Rows = std::conditional_t<sizeof(typename Block::Storage) == 4, Rows32<Block>, Rows16<Block>>;

// ---- The store --------------------------------------------------------------------------------------------

template <class Block>
struct StagedRows {
  using Storage = typename Block::Storage;
  using Rows = strided::Rows<Block>;
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int rows = Block::rows, sums = Block::sums, pitch = Block::pitch;
  static constexpr int staging_bytes = channels * pitch * 4;

  /// Stages the sums of pair `number` % rows of phases, for tile `number` / rows.
  template <int... numbers>
  static __device__ __forceinline__ void stage(const float (&sum)[tiles][slots * sums],
                                               unsigned char* staging, const float* bias, int number,
                                               const Plan& p, std::integer_sequence<int, numbers...>) {
    ((number == numbers ? Rows::template stage_row<numbers % rows>(sum[numbers / rows], staging, bias, p)
                        : void()),
     ...);
  }

  static __device__ __forceinline__ void write(const float (&sum)[tiles][slots * sums], const Shared& shared,
                                               const Tile& tile, const Columns& columns, int row_block,
                                               int warpgroup, Storage* __restrict__ output, const Plan& p) {
    constexpr int element = sizeof(Storage);
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    unsigned char* const staging = shared.staging + warpgroup * staging_bytes;
    const int64_t channel_bytes = int64_t{p.out_channel} * 4 * element;  // to the next one of the warp
    const int channel0 = columns.channel_block * channels;
    const int count = (min(channels, p.out_per_group - channel0) - warp + 3) / 4;
    Storage* const to = output + (int64_t{tile.image} * p.groups * p.out_per_group +
                                  columns.group * p.out_per_group + channel0 + warp) *
                                     p.out_channel;
    const int first_row = row_block * rows, alive_rows = min(rows, p.rows - first_row);
    Place place = place_of(tile.position + (p.depths == 2 ? 0 : warpgroup * tiles * 64), p);
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      const int depth = p.depths == 2 ? warpgroup : 0;
      if (place.column >= p.pitch) {  // after the first span
        const Place next = place_of(place.column, p);
        place = {place.row + next.row, next.column};
      }
      const typename Rows::Span span = Rows::span_of(tile.depth + depth, place, p);
      place.column += 64;
      const auto copy_row = [&]<bool alive>(std::bool_constant<alive>, const PhasePair& row) {
        char* const channel = reinterpret_cast<char*>(to + (int64_t{row.d} * p.h.out + row.h) * p.w.out);
        Rows::template copy_row<alive>(staging + warp * pitch * 4, shared.bias + warp, span,
                                       2 * row.d + row.h, channel, channel_bytes, count, p);
      };
      // Pairs of phases: the live ones of this block, and its share of the dead ones.
#pragma unroll 1
      for (int r = 0; r < alive_rows; ++r) {
        ptx::named_barrier<128>(1 + warpgroup);  // the previous contents of the staging memory have been read
        stage(sum, staging, shared.bias, t * rows + r, p, std::make_integer_sequence<int, tiles * rows>{});
        ptx::named_barrier<128>(1 + warpgroup);
        copy_row(std::true_type{}, p.row[first_row + r]);
      }
#pragma unroll 1
      for (int r = row_block; r < p.dead_rows; r += p.row_blocks)
        copy_row(std::false_type{}, p.row[p.rows + r]);
    }
  }
};

}  // namespace vox::cuda::conv::strided

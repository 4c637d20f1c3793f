#pragma once

// Results of the strided kernels where cells are the rows of an instruction: from registers to rows of the
// output.
//
// A thread has, of every 8 cells, one cell of two channels. Instructions take their cells so that those of a
// warp are neighbours (cells_apart in plan.h). Stored as they are, 8 cells of 4 channels would leave at once,
// and touch parts of many 32-byte sectors, which memory takes slowly. So the four lanes that have the same
// cells exchange sums (element_of in plan.h). A warp then stores 32 neighbours of one channel at once, and
// after them its next 32.
//
// A lane stores elements one by one, each anywhere: rows may begin at any address, and cells may continue in
// the next row. Numbers of 16 bits are exchanged as words: of both phases along w, which are then stored as a
// word, if all are aligned; of two channels otherwise.
//
// Where no tap reaches, the output is the bias. A phase along w without taps is stored between the others; a
// row without taps by the warp that stores the rows beside it, so that both parts of a sector come at once;
// and depths without taps are divided into runs of whole sectors.

#include <voxgrad/cuda/conv3d/strided/block.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

#include <type_traits>

namespace vox::cuda::conv::strided {

/// Value i of lane k of every four becomes value k of lane i.
__device__ __forceinline__ void exchange(uint32_t (&v)[4], int lane) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      uint32_t &low = v[bit == 1 ? 2 * n : n], &high = v[bit == 1 ? 2 * n + 1 : n + 2];
      const uint32_t kept = upper ? high : low;
      const uint32_t received = __shfl_xor_sync(0xffffffff, upper ? low : high, bit);
      low = upper ? received : kept, high = upper ? kept : received;
    }
  }
}

template <class Block>
struct Rows {
  using Storage = typename Block::Storage;
  using One = std::conditional_t<sizeof(Storage) == 4, uint32_t, uint16_t>;
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int rows = Block::rows, sums = Block::sums;
  static constexpr int size = sizeof(Storage), cells = 16 * tiles;  // of a warp
  using Sums = float[tiles][slots * sums];

  /// What a word holds: an element; two of 16 bits, of two channels; or of both phases along w.
  enum class Word { one, channels, phases };

  /// Two numbers of 16 bits as a word, or the first of 32 bits. Opaque to the compiler, which otherwise turns
  /// the sums into integers and moves them back and forth between products.
  static __device__ __forceinline__ uint32_t word_of(float first, float second) {
    if constexpr (size == 4)
      return __float_as_uint(ptx::opaque(first));
    else
      return ptx::packed<Block::Operand::operand>(first, second);
  }

  /// Words of a warp: `phases` of them lie side by side for each cell.
  template <Word word, int phases>
  struct Chunks {
    static constexpr int count = chunks_of(tiles, phases);
    uint32_t offset[count];  // in bytes of a channel
    uint32_t exists;         // bit 4 i + 2 d + h

    __device__ __forceinline__ Chunks(const Place& first, int depth, const Plan& p) : exists(0) {
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const Target to = target_of(element_of(phases, i, lane / 4, lane % 4), cells, first, depth, p);
        offset[i] = to.offset * size, exists |= to.exists << 4 * i;
      }
    }
    /// Value i of a chunk for channel 8 j + e of the lane's, or (Word::channels) for two of them.
    static __device__ __forceinline__ uint32_t value(const Sums& sum, int r, int chunk, int i, int j, int e,
                                                     const float* bias, const Plan& p) {
      const Element of = element_of(phases, chunk, 0, i);
      const int octet = of.cell / 8;  // row 8 (octet / tiles) of an instruction, octet % tiles
      if (octet >= 2 * tiles) return 0;
      const auto at = [&](int phase, int channel) {
        if (slots == 1 && p.w.out_step == 2 && phase != p.phase_w[0]) return bias[8 * j + channel];
        return sum[octet % tiles]
                  [(slots > 1 ? 2 * r + phase : 0) * sums + 4 * j + octet / tiles * 2 + channel];
      };
      return word == Word::phases ? word_of(at(0, e), at(1, e))
                                  : word_of(at(of.phase, e), word == Word::channels ? at(of.phase, 1) : 0);
    }

    /// Stores eight channels from 8 j on. `to` is channel 0 of the block, of which `here` exist, at phases
    /// along d and h whose bit of `exists` is `bit`; `bias` is that of the lane's first channel.
    __device__ __forceinline__ void store(const Sums& sum, int r, int j, int bit, const float* bias, char* to,
                                          int64_t channel_bytes, int here, int lane, const Plan& p) const {
#pragma unroll
      for (int e = 0; e < (word == Word::channels ? 1 : 2); ++e) {
        uint32_t v[count][4];
#pragma unroll
        for (int chunk = 0; chunk < count; ++chunk) {
#pragma unroll
          for (int i = 0; i < 4; ++i) v[chunk][i] = value(sum, r, chunk, i, j, e, bias, p);
          exchange(v[chunk], lane);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int chunk = 0; chunk < count; ++chunk) {
            const int channel = 8 * j + 2 * k + e, most = exists >> (4 * chunk + bit) & 1 ? here : 0;
            char* const at = to + channel * channel_bytes + offset[chunk];
            if constexpr (word == Word::channels) {
              ptx::store_if_greater(most, channel, at, static_cast<uint16_t>(v[chunk][k]));
              ptx::store_if_greater(most, channel + 1, at + channel_bytes,
                                    static_cast<uint16_t>(v[chunk][k] >> 16));
            } else {
              ptx::store_if_greater(most, channel, at, v[chunk][k]);
            }
          }
      }
    }
  };

  /// Fills `count` elements with a bias, at most `most`, which is the same in a warp. Eight lanes do it.
  static __device__ __forceinline__ void fill(char* to, int count, int most, float bias) {
    const int lane = ptx::lane_here() % 8;
    constexpr int granule = 16 / size;
    const uint32_t word = word_of(bias, bias);
    const int head = min(-static_cast<int>(reinterpret_cast<uintptr_t>(to) / size) & (granule - 1), count);
    const int body = (count - head) / granule, tail = count - head - body * granule;
    ptx::store_if_greater(head, lane, to + lane * size, static_cast<One>(word));
    char* const end = to + int64_t{count} * size;
    to += head * size + lane * 16;
#pragma unroll 1
    for (int x = 0; x < most / granule; x += 8, to += 128)
      ptx::store_if_greater(body, x + lane, to, make_uint4(word, word, word, word));
    ptx::store_if_greater(tail, lane, end - (lane + 1) * size, static_cast<One>(word));
  }

  /// What a warp writes of a tile.
  struct Share {
    int position, depth, warp, here;  // `here` channels of the block exist
    char* to;                         // the block's first channel
    int64_t channel_bytes;
    const float* bias;
  };

  /// Fills rows without taps in a depth, in channels from `first` to before `end`, four at a time.
  static __device__ __forceinline__ void fill_rows(const Share& share, const Interval& of, int d, int first,
                                                   int end, const Plan& p) {
    const int own = ptx::lane_here() / 8;
#pragma unroll 1
    for (int c = first + own; c - own < min(end, share.here); c += 4)
#pragma unroll 1
      for (int h = 2 * of.first + p.dead_row; h < min(2 * of.end, p.h.out); h += 2)
        fill(share.to + c * share.channel_bytes + (int64_t{d} * p.h.out + h) * p.w.out * size,
             c < share.here ? p.w.out : 0, p.w.out, share.bias[c]);
  }
  /// Fills the warp's part of the depths without taps.
  static __device__ __forceinline__ void fill_depths(const Share& share, int part, int parts, const Plan& p) {
    constexpr int per_sector = 32 / size;
    const int elements = p.h.out * p.w.out, own = ptx::lane_here() / 8;
    const Interval even = part_of(elements, part, parts);
#pragma unroll 1
    for (int i = 0; i < p.dead_depths; ++i) {
      const int d = share.depth * p.d.out_step + p.dead_depth[i];
#pragma unroll 1
      for (int c = 4 * share.warp + own; c - own < share.here && d < p.d.out; c += 16) {
        char* const plane = share.to + c * share.channel_bytes + int64_t{d} * elements * size;
        const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(plane) % 32 / size);
        const Interval of = in_sectors(even, elements, misaligned, per_sector);
        fill(plane + int64_t{of.first} * size, c < share.here ? of.end - of.first : 0,
             even.end - even.first + per_sector, share.bias[c]);
      }
    }
  }

  /// Writes the sums of the live pairs of phases of a block of rows.
  template <Word word, int phases>
  static __device__ __forceinline__ void write_rows(const Sums& sum, const Share& share, int first_row,
                                                    const Plan& p) {
    const int lane = ptx::lane_here();
    const Chunks<word, phases> chunks(place_of(share.position, p), share.depth, p);
    const Interval filled = filled_rows(share.position, cells, p);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (first_row + r >= p.rows) break;
      const PhasePair row = p.row[first_row + r];
      const int d = share.depth * p.d.out_step + row.d;
      char* const to = share.to + (int64_t{row.d} * p.h.out + row.h) * p.w.out * size;
#pragma unroll
      for (int j = 0; j < channels / 8; ++j) {
        chunks.store(sum, r, j, 2 * row.d + row.h, share.bias + lane % 4 * 2, to, share.channel_bytes,
                     share.here, lane, p);
        // 8 channels at a time; but with more phases that would be much code.
        if (slots == 1 && p.dead_row >= 0 && d < p.d.out) fill_rows(share, filled, d, 8 * j, 8 * j + 8, p);
      }
      if (slots > 1 && p.dead_row >= 0 && d < p.d.out) fill_rows(share, filled, d, 0, channels, p);
    }
  }

  /// Writes a tile.
  static __device__ __forceinline__ void write(const Sums& sum, const Shared& shared, const Tile& tile,
                                               const Columns& columns, int row_block, int warpgroup,
                                               Storage* __restrict__ output, const Plan& p) {
    // Read from lane 0, so that the compiler knows that lanes do not diverge. Otherwise it serialises wgmma.
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0), part = p.depths == 2 ? 0 : warpgroup;
    const int channel0 = columns.channel_block * channels;
    const int64_t first_channel =
        int64_t{tile.image} * p.groups * p.out_per_group + columns.group * p.out_per_group + channel0;
    const Share share{.position = tile.position + part * tiles * 64 + warp * cells,
                      .depth = tile.depth + (p.depths == 2 ? warpgroup : 0),
                      .warp = warp,
                      .here = min(channels, p.out_per_group - channel0),
                      .to = reinterpret_cast<char*>(output + first_channel * p.out_channel),
                      .channel_bytes = int64_t{p.out_channel} * size,
                      .bias = shared.bias};
    constexpr Word alone = size == 4 ? Word::one : Word::channels;
    const bool words = phases_are_words(size, p) && reinterpret_cast<uintptr_t>(output) % 4 == 0;
    if (p.w.out_step == 1)
      write_rows<alone, 1>(sum, share, row_block * rows, p);
    else if (size == 4 || !words)
      write_rows<alone, 2>(sum, share, row_block * rows, p);
    else if constexpr (size == 2)
      write_rows<Word::phases, 1>(sum, share, row_block * rows, p);
    if (row_block == 0 && p.dead_depths > 0)
      fill_depths(share, tile.position / (64 * tiles) + part, p.plane_tiles * (p.depths == 2 ? 1 : 2), p);
  }
};

}  // namespace vox::cuda::conv::strided

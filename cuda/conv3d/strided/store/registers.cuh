#pragma once

// Results of the strided kernels where a pair of phases has few channels: from registers to rows of the
// output.
//
// A thread holds two cells of a span of 64 (row and row + 8 of its warp's 16), for two channels of every
// eight. Both phases along w of a cell lie side by side in the output, 8 cells of a channel in one store: 64
// bytes of f32, 32 of 16 bits. Where a row begins in the middle of a pair, a pair is the second phase of a
// cell and the first of the next one, which another thread provides.

#include <voxgrad/cuda/conv3d/strided/block.cuh>
#include <voxgrad/cuda/conv3d/strided/store/staged.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

#include <type_traits>

namespace vox::cuda::conv::strided {

template <class Block>
struct RegisterRows {
  using Storage = typename Block::Storage;
  using Pair = std::conditional_t<sizeof(Storage) == 4, float2, uint32_t>;
  using BiasRows = Rows<Block>;  // where phases have no taps
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int rows = Block::rows, sums = Block::sums;
  static constexpr int size = sizeof(Storage), staging_bytes = 0;

  static __device__ __forceinline__ Pair pair_of(float first, float second) {
    if constexpr (size == 4)
      return make_float2(first, second);
    else
      return ptx::packed<Block::Operand::operand>(first, second);
  }
  static __device__ __forceinline__ void store_first(char* to, Pair pair) {
    if constexpr (size == 4)
      *reinterpret_cast<float*>(to) = pair.x;
    else
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(pair);
  }
  static __device__ __forceinline__ void store_second(char* to, Pair pair) {
    if constexpr (size == 4)
      *reinterpret_cast<float*>(to) = pair.y;
    else
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(pair >> 16);
  }
  static __device__ __forceinline__ void store(char* to, Pair pair) { *reinterpret_cast<Pair*>(to) = pair; }
  static __device__ __forceinline__ bool begins_pair(const char* to) {
    return reinterpret_cast<uintptr_t>(to) % sizeof(Pair) == 0;
  }

  /// Where the cells of a span are written.
  struct Cells {
    bool straight;       // the span lies in one row, with two phases to a cell
    uint32_t first;      // where its first element goes: bytes, in one channel at phases (0, 0) along d and h
    uint32_t offset[2];  // the same of the thread's two cells
    uint32_t exists;     // 12 bits a cell: rows_of its first phase, of its second, of the next cell's first
  };
  static __device__ __forceinline__ Cells cells_of(int d, const Place& first, const Plan& p) {
    Cells cells;
    const int row = threadIdx.x % 32 / 4, cell = threadIdx.x / 32 % 4 * 16 + row;
    const bool one_row = first.column + 64 <= p.pitch;
    cells.straight = one_row && p.w.out_step == 2;
    cells.first = offset_of(d, first.row, first.column * p.w.out_step, p) * size;
    cells.exists = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Place at{first.row, first.column + cell + 8 * i};
      if (!one_row) {
        at = place_of(at.column, p);
        at.row += first.row;
      }
      const int w = at.column * p.w.out_step;
      cells.offset[i] = offset_of(d, at.row, w, p) * size;
      const uint32_t here = at.column < p.w.cells ? rows_of(d, at.row, p) : 0;
      if (w < p.w.out) cells.exists |= here << 12 * i;
      if (p.w.out_step == 2 && w + 1 < p.w.out) cells.exists |= here << (12 * i + 4);
      if (w + 2 < p.w.out && at.column + 1 < p.w.cells && (i == 0 || row < 7))
        cells.exists |= here << (12 * i + 8);
    }
    return cells;
  }

  /// Writes the sums of pair `r` (a constant) of phases along w. `channel` is the block's first channel, at
  /// this row of the output; `here` of its channels exist.
  static __device__ __forceinline__ void write_row(const float (&sum)[slots * sums], int r,
                                                   const Cells& cells, int shift, char* channel,
                                                   int64_t channel_bytes, int here) {
    const int lane =
        ptx::lane_here();  // otherwise the compiler keeps addresses of all rows, and runs out of registers
    const auto exists = [&](int bit) { return (cells.exists >> (bit + shift) & 1) != 0; };
    // The two phases of channel 8 j + e (of the thread's) at cell i.
    const auto phases = [&](int j, int e, int i, float& low, float& high) {
      low = sum[2 * r * sums + j * 4 + 2 * i + e];
      high = sum[(2 * r + 1) * sums + j * 4 + 2 * i + e];
    };
    // Read from lane 0, here and below, so that the compiler knows that a warp does not diverge. Otherwise it
    // serialises the wgmma of later tiles.
    if (__shfl_sync(0xffffffff, cells.straight && here == channels, 0)) {
      const auto write = [&](auto is_odd, int e) {
        constexpr bool odd = is_odd;
        bool whole[2], half[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          whole[i] = exists(12 * i + 4 * odd) && exists(12 * i + 4 * odd + 4);
          half[i] = exists(12 * i + 4 * odd) && !exists(12 * i + 4 * odd + 4);
        }
        const bool lone = odd && lane < 4 && exists(0);
        char* to = channel + (lane % 4 * 2 + e) * channel_bytes + cells.offset[0];
#pragma unroll
        for (int j = 0; j < channels / 8; ++j, to += 8 * channel_bytes) {
          float low[2], high[2], next[2];
          phases(j, e, 0, low[0], high[0]);
          phases(j, e, 1, low[1], high[1]);
          if constexpr (odd) {
            next[0] = __shfl_sync(0xffffffff, lane < 4 ? low[1] : low[0], lane + 4);
            next[1] = __shfl_sync(0xffffffff, low[1], lane + 4);
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const Pair pair = odd ? pair_of(high[i], next[i]) : pair_of(low[i], high[i]);
            char* const at = to + (16 * i + odd) * size;
            if (whole[i]) store(at, pair);
            if (half[i]) store_first(at, pair);
          }
          if (lone) store_first(to, pair_of(low[0], low[0]));
        }
      };
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (__shfl_sync(0xffffffff, begins_pair(channel + e * channel_bytes + cells.first), 0))
          write(std::false_type{}, e);
        else
          write(std::true_type{}, e);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool first = exists(12 * i), second = exists(12 * i + 4);
        char* const to0 = channel + lane % 4 * 2 * channel_bytes + cells.offset[i];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          char* to = to0 + e * channel_bytes;
          const bool whole = first && second && begins_pair(to);
#pragma unroll
          for (int j = 0; j < channels / 8; ++j, to += 8 * channel_bytes) {
            const bool exists_here = j * 8 + e < here - lane % 4 * 2;
            float low, high;
            phases(j, e, i, low, high);
            const Pair pair = pair_of(low, high);
            if (whole && exists_here) store(to, pair);
            if (first && !whole && exists_here) store_first(to, pair);
            if (second && !whole && exists_here) store_second(to + size, pair);
          }
        }
      }
    }
  }

  /// Writes a tile: the live pairs of phases of this block of rows, and its share of the dead ones.
  static __device__ __forceinline__ void write(const float (&sum)[tiles][slots * sums], const Shared& shared,
                                               const Tile& tile, const Columns& columns, int row_block,
                                               int warpgroup, Storage* __restrict__ output, const Plan& p) {
    const int64_t channel_bytes = int64_t{p.out_channel} * size;
    const int channel0 = columns.channel_block * channels;
    const int here = min(channels, p.out_per_group - channel0);
    char* const to = reinterpret_cast<char*>(output + (int64_t{tile.image} * p.groups * p.out_per_group +
                                                       columns.group * p.out_per_group + channel0) *
                                                          p.out_channel);
    const auto row_at = [&](const PhasePair& row) {
      return to + (int64_t{row.d} * p.h.out + row.h) * p.w.out * size;
    };
    const int depth = tile.depth + (p.depths == 2 ? warpgroup : 0);
    const int first_row = row_block * rows;
    Place place = place_of(tile.position + (p.depths == 2 ? 0 : warpgroup * tiles * 64), p);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const Cells cells = cells_of(depth, place, p);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (first_row + r >= p.rows) break;
        const PhasePair row = p.row[first_row + r];
        write_row(sum[t], r, cells, 2 * row.d + row.h, row_at(row), channel_bytes, here);
      }
      if (row_block < p.dead_rows) {
        const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
        const auto span = BiasRows::span_of(depth, place, p);
#pragma unroll 1
        for (int r = row_block; r < p.dead_rows; r += p.row_blocks) {
          const PhasePair row = p.row[p.rows + r];
          BiasRows::template copy_row<false>(nullptr, shared.bias + warp, span, 2 * row.d + row.h,
                                             row_at(row) + warp * channel_bytes, 4 * channel_bytes,
                                             (here - warp + 3) / 4, p);
        }
      }
      place.column += 64;
      if (place.column >= p.pitch) {
        const Place next = place_of(place.column, p);
        place = {place.row + next.row, next.column};
      }
    }
  }
};

}  // namespace vox::cuda::conv::strided

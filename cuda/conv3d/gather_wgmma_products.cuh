#pragma once

// The consumers of gather_wgmma.cuh: warpgroups that gather cells from the rows of a stage, multiply them,
// and store a depth of the output when it is complete.

#include <voxgrad/cuda/conv3d/gather_wgmma_shared.cuh>
#include <voxgrad/cuda/conv3d/rounded_tf32.cuh>
#include <voxgrad/cuda/conv3d/split_tf32.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>
#include <voxgrad/cuda/ptx/store.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::gather {

template <class Block>
struct Products {
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int sums = Block::sums;
  static constexpr bool split = Block::split;
  static constexpr int tap_step = channels * 2;  // of weights, in 16 bytes

  // Of a thread: its two rows of each tile of 64, and its channels k and k + 4.
  int cell[tiles][2];          // where their rows and columns begin in a channel's rows, in bytes
  uint32_t outside[tiles][2];  // bit k_h, 16 + k_w: that tap is outside of the input
  float sum[tiles][slots][sums];
  float total[split ? tiles : 1][slots][split ? sums : 1];  // of sums that were moved in time
  int begun = 0;                                            // bit s: slot s has sums

  __device__ __forceinline__ void locate(const Tile& tile, int warpgroup, const GatherPlan& p) {
    const Rows rows = rows_of(tile, Block::cells, p);
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int number = tile.cell + own_cell(warpgroup, t, half);
        const int row = first_of(number / p.w.out, p.h), column = first_of(number % p.w.out, p.w);
        cell[t][half] = ((row - rows.first) * p.w.in + column) * 4;
        uint32_t out = 0;
        for (int k = 0; k < p.h.kernel; ++k)
          if (static_cast<unsigned>(row + k * p.h.dilation) >= static_cast<unsigned>(p.h.in)) out |= 1u << k;
        for (int k = 0; k < p.w.kernel; ++k)
          if (static_cast<unsigned>(column + k * p.w.dilation) >= static_cast<unsigned>(p.w.in))
            out |= 1u << (16 + k);
        outside[t][half] = number < p.cells ? out : ~0u;
      }
  }

  static __device__ __forceinline__ int own_cell(int warpgroup, int t, int half) {
    return (warpgroup * tiles + t) * 64 + threadIdx.x / 32 % 4 * 16 + half * 8 + threadIdx.x % 32 / 4;
  }

  /// A thread's cells of a tap, as they come, and as the tensor cores take them, in both parts or one.
  using Raw = uint32_t[tiles][4];
  struct Cells {
    uint32_t high[tiles][4], low[split ? tiles : 1][4];
  };
  /// Where a thread's cells are in a stage, of channels k and k + 4.
  using Addresses = uint32_t[tiles][2][2];

  __device__ __forceinline__ void gather(Raw& raw, const Addresses& at, const GatherTap& tap) const {
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::load_shared_unless(outside[t][half] & tap.where, raw[t][half], at[t][half][0] + tap.offset,
                                raw[t][2 + half], at[t][half][1] + tap.offset);
  }

  static __device__ __forceinline__ void convert(Cells& a, const Raw& raw) {
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if constexpr (split) {
          a.high[t][e] = tf32_high_of_finite(raw[t][e]);
          a.low[t][e] = __float_as_uint(__uint_as_float(raw[t][e]) - __uint_as_float(a.high[t][e]));
        } else {
          a.high[t][e] = rounded_to_tf32(__uint_as_float(raw[t][e]));
        }
  }

  /// Cells times the weights of a tap, for the slots in `mask`.
  template <int mask>
  __device__ __forceinline__ void multiply_tap(const Cells& a, uint64_t b, const GatherPlan& p) {
    const uint32_t slot_step = p.slot_weights / 16, low_step = p.slot_weights / 32;
    ptx::wgmma_fence();
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        if (!(mask >> s & 1)) continue;
        const uint64_t weights = b + s * slot_step;
        if constexpr (split) {
          multiply(sum[t][s], a.low[t], weights, begun >> s & 1);
          multiply(sum[t][s], a.high[t], weights + low_step, true);
          multiply(sum[t][s], a.high[t], weights, true);
        } else {
          multiply(sum[t][s], a.high[t], weights, begun >> s & 1);
        }
      }
    ptx::wgmma_commit();
    begun |= mask;
  }
  static __device__ __forceinline__ void multiply(float (&to)[sums], const uint32_t (&a)[4], uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma<ptx::Operand::tf32, channels>(to, a, b, accumulate);
  }

  /// A stage times the weights of the slots in `mask`. All of it has been seen off when it returns.
  template <int mask>
  __device__ __forceinline__ void multiply_stage(uint32_t low, uint32_t high, uint64_t b,
                                                 const GatherPlan& p) {
    Raw raw[2];
    Cells a[2];
    Addresses at;
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        at[t][half][0] = low + cell[t][half], at[t][half][1] = high + cell[t][half];
    gather(raw[0], at, p.tap[0]);
    int first = 0;
#pragma unroll 1
    do {
      const int last = split ? min(first + p.chunk, p.taps) : p.taps;
      if constexpr (split) begun &= ~mask;
#pragma unroll 1
      for (; first + 1 < last; first += 2) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          gather(raw[1 - n], at, p.tap[first + n + 1]);  // behind the last there is room for one
          convert(a[n], raw[n]);
          multiply_tap<mask>(a[n], b + n * tap_step, p);
          ptx::wgmma_wait<1>();  // for the tap before
        }
        b += 2 * tap_step;
      }
      ptx::wgmma_wait<0>();
      if (first < last) {  // of the last chunk
        convert(a[0], raw[0]);
        multiply_tap<mask>(a[0], b, p);
        ++first;
        ptx::wgmma_wait<0>();
      }
      if constexpr (split) {
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
          for (int s = 0; s < slots; ++s)
#pragma unroll
            for (int i = 0; i < sums; ++i)
              if (mask >> s & 1) total[t][s][i] += sum[t][s][i];
      }
    } while (split && first < p.taps);
  }

  template <int mask = (1 << slots) - 1>
  __device__ __forceinline__ void multiply_live(int live, uint32_t low, uint32_t high, uint64_t b,
                                                const GatherPlan& p) {
    if (live == mask)
      multiply_stage<mask>(low, high, b, p);
    else if constexpr (mask > 1)
      multiply_live<mask - 1>(live, low, high, b, p);
  }

  /// f(integral constant) of a slot that the compiler does not know.
  template <class F>
  static __device__ __forceinline__ void with_slot(int slot, F f) {
    if (slots == 1 || slot == 0) return f(std::integral_constant<int, 0>{});
    if constexpr (slots > 1)
      if (slots == 2 || slot == 1) return f(std::integral_constant<int, 1>{});
    if constexpr (slots > 2) f(std::integral_constant<int, 2>{});
  }

  /// Stores a slot's sums. `to` and `bias` are those of the thread's first channel, of `here` in the group.
  template <int slot>
  __device__ __forceinline__ void store(int first_cell, int warpgroup, const float* bias, float* to, int here,
                                        int64_t* not_split, const GatherPlan& p) const {
    bool finite = true;
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int number = first_cell + own_cell(warpgroup, t, half);
        const bool any = begun >> slot & 1;
        const int wanted = number < p.cells ? here : 0;
        float* at = to + number;
#pragma unroll
        for (int j = 0; j < channels / 8; ++j, at += 7 * int64_t{p.out_channel})
#pragma unroll
          for (int e = 0; e < 2; ++e, at += e == 1 ? p.out_channel : 0) {
            const int i = j * 4 + 2 * half + e;
            float result = bias && 8 * j + e < here ? __ldg(bias + 8 * j + e) : 0.0f;
            if constexpr (split) {
              result += total[t][slot][i];
              finite &= 8 * j + e >= wanted || fabsf(result) < __uint_as_float(0x7f800000);
            } else {
              result += any ? sum[t][slot][i] : 0.0f;
            }
            ptx::store_if_greater(wanted, 8 * j + e, at, __float_as_uint(result));
          }
      }
    if (split && !finite) *not_split = 1;
  }

  __device__ __forceinline__ void consume(const float* __restrict__ input, const Columns& columns,
                                          const Shared& shared, int warpgroup, const float* __restrict__ bias,
                                          float* __restrict__ output, int64_t* not_split,
                                          const GatherPlan& p) {
    flat::Ring ring{p.stages};
    const int own_low = gather_channel(threadIdx.x % 4, p.neighbours),
              own_high = gather_channel(threadIdx.x % 4 + 4, p.neighbours);
    const int pair = columns.channel_block * channels + threadIdx.x % 4 * 2;  // of channels in eight
    const int here = p.out_per_group - pair;
    if (bias) bias += columns.group * p.out_per_group + pair;
    Tile tile{};
    const float* channels_in = nullptr;
    int row = 0;
    walk<Block>(
        p,
        [&](const Tile& next) {
          tile = next;
          channels_in = first_channel(input, tile, columns, p);
          row = rows_of(tile, Block::cells, p).first;
          locate(tile, warpgroup, p);
        },
        [&](int slot) {
          begun &= ~(1 << slot);
          if constexpr (split)
            with_slot(slot, [&](auto s) {
#pragma unroll
              for (int t = 0; t < tiles; ++t)
#pragma unroll
                for (int i = 0; i < sums; ++i) total[t][s][i] = 0;
            });
        },
        [&](int plane, const Live& live) {
          // Where channels k and k + 4 of a slab begin in a stage: the same for channels that are 8 apart.
          const int64_t first = int64_t{plane} * p.in_plane + row * p.w.in;
          const auto begin = [&](int own, int s) {
            return own * p.channel_bytes + 4 * word_of(channel_at(channels_in, s * slab + own, p) + first);
          };
          uint32_t low = begin(own_low, 0), high = begin(own_high, 0);
          const int mask = live.mask<slots>();
          for (int s = 0; s < p.slabs; ++s, ring.advance()) {
            if ((s + 1) * slab > p.in_per_group) low = begin(own_low, s), high = begin(own_high, s);
            const uint32_t stage = ptx::shared_address_of(shared.stages) + ring.slot * p.stage_bytes;
            const uint64_t b = ptx::shared_matrix(
                shared.stages + (ring.slot + 1) * p.stage_bytes - slots * p.slot_weights, channels * 16, 128);
            ptx::mbarrier_wait(shared.full[ring.slot], ring.parity);
            multiply_live(mask, stage + low, stage + high, b, p);
            ptx::mbarrier_arrive(shared.empty[ring.slot]);
          }
        },
        [&](int slot, int depth) {
          float* const to =
              output +
              (int64_t{tile.image} * p.groups * p.out_per_group + columns.group * p.out_per_group + pair) *
                  p.out_channel +
              int64_t{depth} * p.cells;
          with_slot(slot, [&](auto s) { store<s>(tile.cell, warpgroup, bias, to, here, not_split, p); });
        });
  }
};

}  // namespace vox::cuda::gather

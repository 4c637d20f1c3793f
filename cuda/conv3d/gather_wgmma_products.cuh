#pragma once

// The consumers of gather_wgmma.cuh: warpgroups that gather cells from the rows of a stage, multiply them, and
// store a depth of the output when it is complete.

#include <voxgrad/cuda/conv3d/gather_wgmma_shared.cuh>
#include <voxgrad/cuda/ptx/store.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::gather {

/// To TF32: see strided_wgmma_input.cuh.
__device__ __forceinline__ uint32_t rounded(uint32_t x) {
  return __float_as_uint(__uint_as_float(x) * (1 + 0.3466f / 1024));
}

/// The words at two addresses in shared memory, or zeros if a bit of `outside` is set.
__device__ __forceinline__ void load_inside(uint32_t& a, uint32_t& b, uint32_t a_address, uint32_t b_address,
                                            uint32_t outside) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.u32 p, %4, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n@p ld.shared.u32 %0, [%2];\n"
      "@p ld.shared.u32 %1, [%3];\n}"
      : "=&r"(a), "=&r"(b)
      : "r"(a_address), "r"(b_address), "r"(outside));
}

/// The channel of a slab that k stands for in an instruction: those that a warp reads at once (k, or k + 4, of
/// 4 lanes) are two that are 4 apart, and their neighbours.
__host__ __device__ constexpr int channel_of(int k) { return k % 2 * 4 + k % 4 / 2 + k / 4 * 2; }

template <class Block>
struct Products {
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int sums = Block::sums;

  // Of a thread: its two rows of each tile of 64, and its channels k and k + 4.
  int cell[tiles][2];          // where their rows and columns begin in a channel's rows, in bytes
  uint32_t outside[tiles][2];  // bit k_h, 16 + k_w: that tap is outside of the input
  float sum[tiles][slots][sums];
  int begun = 0;  // bit s: slot s has sums

  __device__ __forceinline__ void locate(const Tile& tile, int warpgroup, const GatherPlan& p) {
    const Rows rows = rows_of(tile, Block::cells, p);
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int number = tile.cell + own_cell(warpgroup, t, half);
        const int row = p.h.first_of(number / p.w.out), column = p.w.first_of(number % p.w.out);
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

  /// A stage times the weights of the slots in `mask`. All of it has been seen off when it returns.
  template <int mask>
  __device__ __forceinline__ void multiply(uint32_t low, uint32_t high, uint64_t b, const GatherPlan& p) {
    uint32_t a[2][tiles][4], at[tiles][2][2];
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        at[t][half][0] = low + cell[t][half], at[t][half][1] = high + cell[t][half];
    const uint32_t slot_step = p.slot_weights / 16;
    const auto gather = [&](uint32_t (&a)[tiles][4], int i) {
      const GatherTap& tap = p.tap[i];
#pragma unroll
      for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          load_inside(a[t][half], a[t][2 + half], at[t][half][0] + tap.offset, at[t][half][1] + tap.offset,
                      outside[t][half] & tap.where);
        }
#pragma unroll
      for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[t][e] = rounded(a[t][e]);
    };
    const auto multiply = [&](const uint32_t (&a)[tiles][4]) {
      ptx::wgmma_fence();
#pragma unroll
      for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int s = 0; s < slots; ++s)
          if (mask >> s & 1)
            ptx::wgmma<ptx::Operand::tf32, channels>(sum[t][s], a[t], b + s * slot_step, begun >> s & 1);
      ptx::wgmma_commit();
      begun |= mask;
      b += channels * 2;
    };
#pragma unroll 1
    for (int i = 0; i + 1 < p.taps; i += 2) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        gather(a[n], i + n);
        multiply(a[n]);
        ptx::wgmma_wait<1>();  // for the tap before
      }
    }
    ptx::wgmma_wait<0>();
    if (p.taps % 2) {
      gather(a[0], p.taps - 1);
      multiply(a[0]);
      ptx::wgmma_wait<0>();
    }
  }

  template <int mask = (1 << slots) - 1>
  __device__ __forceinline__ void multiply_live(int live, uint32_t low, uint32_t high, uint64_t b,
                                                const GatherPlan& p) {
    if (live == mask)
      multiply<mask>(low, high, b, p);
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
                                        const GatherPlan& p) const {
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
            const float first = bias && 8 * j + e < here ? __ldg(bias + 8 * j + e) : 0.0f;
            ptx::store_if_greater(wanted, 8 * j + e, at,
                                  __float_as_uint((any ? sum[t][slot][j * 4 + 2 * half + e] : 0.0f) + first));
          }
      }
  }

  __device__ __forceinline__ void consume(const float* __restrict__ input, const Columns& columns,
                                          const Shared& shared, int warpgroup, const float* __restrict__ bias,
                                          float* __restrict__ output, const GatherPlan& p) {
    flat::Ring ring{p.stages};
    const int own_low = channel_of(threadIdx.x % 4), own_high = channel_of(threadIdx.x % 4 + 4);
    const int pair = columns.channel_block * channels + threadIdx.x % 4 * 2;  // of channels in eight
    const int here = p.out_per_group - pair;
    if (bias) bias += columns.group * p.out_per_group + pair;
    Tile tile{};
    int row = 0;
    walk<Block>(
        p,
        [&](const Tile& next) {
          tile = next;
          row = rows_of(tile, Block::cells, p).first;
          locate(tile, warpgroup, p);
        },
        [&](int slot) { begun &= ~(1 << slot); },
        [&](int plane, const Live<slots>& live) {
          const float* channel =
              input + (int64_t{tile.image} * p.groups * p.in_per_group + columns.group * p.in_per_group) *
                          p.in_channel;
          for (int s = 0; s < p.slabs; ++s, ring.advance(), channel += slab * int64_t{p.in_channel}) {
            const uint32_t stage = ptx::shared_address_of(shared.stages) + ring.slot * p.stage_bytes;
            const uint32_t low = stage + own_low * p.channel_bytes +
                                 4 * word_of(channel + own_low * int64_t{p.in_channel}, plane, row, p);
            const uint32_t high = stage + own_high * p.channel_bytes +
                                  4 * word_of(channel + own_high * int64_t{p.in_channel}, plane, row, p);
            const uint64_t b = ptx::shared_matrix(
                shared.stages + ring.slot * p.stage_bytes + p.stage_bytes - slots * p.slot_weights,
                channels * 16, 128);
            ptx::mbarrier_wait(shared.full[ring.slot], ring.parity);
            multiply_live(live.mask, low, high, b, p);
            ptx::mbarrier_arrive(shared.empty[ring.slot]);
          }
        },
        [&](int slot, int depth) {
          float* const to =
              output + (int64_t{tile.image} * p.groups * p.out_per_group + columns.group * p.out_per_group +
                        pair) * p.out_channel + int64_t{depth} * p.cells;
          with_slot(slot, [&](auto s) { store<s>(tile.cell, warpgroup, bias, to, here, p); });
        });
  }
};

}  // namespace vox::cuda::gather

#pragma once

// conv3d on Hopper's tensor cores (wgmma) from rows of the input as they lie in memory: f32 rounded to TF32,
// or split into two TF32 numbers. conv_transpose3d with stride 1 is the same with the taps in reverse
// (plan.cpp).
//
//   output[m, n] = bias[n] + sum over k, taps  input[k, m * stride - padding + tap] * weight[k, n, tap]
//   m: a cell of the output     n: an output channel of the group     k: an input channel
//
// The first operand of a wgmma may come from registers, so the input need not be put in order. The rows that
// a tile of cells reads are one contiguous piece of each channel's plane. The copy engine brings it as it is,
// and each lane gathers its cells, one 4-byte load for a cell and channel, at any stride and shift. There is
// no halo of zeros: a lane knows which of its taps fall outside, and does not load them.
//
// What a block owns: a block works on jobs. A job is a tile of 2 x `tiles` x 64 cells of a plane of one
// image, a part of the output's depths, and `channels`. The block marches through the planes of the input. A
// plane serves several depths (kernel 3 with stride 2: one, two, one, two ...), whose sums are kept in
// `slots`: depth has slot depth % slots, which is stored when its last plane is done, and then starts over. A
// gathered fragment is multiplied for all depths that the plane serves. Two warpgroups gather, multiply and
// store. Lanes of one warp start copies into a ring of stages: 8 channels of a plane's rows, and the weights
// of all its taps. Blocks share no results: no atomics, and the bits never change.
//
// Split: high and low parts are made from the gathered values, and three of their four products are computed.
// Sums move to f32 registers after `chunk` taps (Note [Truncating sums] in common/operands.cuh). A result
// that is not finite sets the flag `failed` (Note [Redo] in call.h).
//
// What limits it: README.md and NOTES.md.

#include <voxgrad/cuda/conv3d/gather/plan.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>

namespace vox::cuda::conv::gather {

// ---- What a block owns ------------------------------------------------------------------------------------

constexpr int consumer_threads = warpgroups * 128;
constexpr int block_threads = consumer_threads + 128;  // of the last 128, one warp loads
constexpr int consumer_registers = 232, loader_registers = 40;
constexpr int slab = 8;  // channels of the input in a stage

/// What a block computes at once (TileShape), with its sums.
template <int channels_, int slots_, int tiles_, bool split_>
struct Block {
  static constexpr int channels = channels_, slots = slots_, tiles = tiles_;
  static constexpr bool split = split_;
  static constexpr TileShape shape{channels, slots, tiles, split};
  static constexpr int cells = cells_of(shape);
  static constexpr int sums = channels / 2;           // of a tile and slot, in a thread
  static constexpr int copying_lanes = slab + slots;  // one for each channel, and for each slot's weights
};

/// A block of channels.
struct Columns {
  int group, channel_block;
};

/// A channel of the input. Channels past the group repeat its last one; their weights are 0, and if the last
/// one has a NaN, the results have it anyway.
__device__ __forceinline__ const float* channel_at(const float* first_of_group, int in_group, const Plan& p) {
  return first_of_group + int64_t{min(in_group, p.in_per_group - 1)} * p.in_channel;
}
__device__ __forceinline__ const float* first_channel(const float* input, const Tile& tile,
                                                      const Columns& columns, const Plan& p) {
  return input + (int64_t{tile.image} * p.groups + columns.group) * p.in_per_group * p.in_channel;
}

/// An address in elements modulo 4. A number has the same place within 16 bytes in shared memory.
__device__ __forceinline__ int word_of(const float* at) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(at) / 4 % 4);
}

struct Shared {
  unsigned char* stages;  // each [channel][row][column] of floats, then the weights of each slot
  ptx::Mbarrier *full, *empty;
};

// ---- The producer -----------------------------------------------------------------------------------------

// One warp starts copies: a lane for each channel and for each slot's weights. Its instructions delay the
// copy into a stage that has become free, so there are few of them.

/// Brings the elements of [word, words) that are outside of [begin, stop) one by one: they share a 16-byte
/// granule with memory beyond the tensor, so the copy engine must not touch it.
__device__ __forceinline__ void copy_ends(float* to, const float* from, int word, int begin, int stop,
                                          int words) {
#pragma unroll 1
  for (int i = word; i < min(begin, words); ++i) to[i] = from[i];
#pragma unroll 1
  for (int i = max(begin, stop); i < words; ++i) to[i] = from[i];
  ptx::fence_proxy_async();  // before another copy to the same memory
}

template <class Block>
__device__ __forceinline__ void load(const float* __restrict__ input,
                                     const unsigned char* __restrict__ packed, const Columns& columns,
                                     const Shared& shared, const Plan& p) {
  const int lane = threadIdx.x % 32;
  if (lane >= Block::copying_lanes) return;
  const bool of_channel = lane < slab;
  const int own_offset =
      of_channel ? lane * p.channel_bytes : p.stage_bytes - (Block::copying_lanes - lane) * p.slot_weights;
  const unsigned char* const weights =
      packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.slabs * p.d.kernel *
                   p.slot_weights;
  const float* const end = input + int64_t{p.batch} * p.groups * p.in_per_group * p.in_channel;
  Ring ring{p.stages};
  const float* channels = nullptr;
  Rows rows{};
  walk(
      p, Block::shape, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x),
      [&](const Tile& tile) {
        channels = first_channel(input, tile, columns, p);
        rows = rows_of(tile, Block::cells, p);
      },
      [](int) {},
      [&](int plane, const Live& live) {
        const int64_t first = int64_t{plane} * p.in_plane + rows.first * p.w.in;
        const int tap = live.tap(lane - slab);
#pragma unroll 1
        for (int s = 0; s < p.slabs; ++s, ring.advance()) {
          unsigned char* to = shared.stages + ring.slot * p.stage_bytes + own_offset;
          const void* from = weights + (int64_t{s} * p.d.kernel + tap) * p.slot_weights;
          int bytes = tap >= 0 ? p.slot_weights : 0;
          if (of_channel) {
            const float* const at = channel_at(channels, s * slab + lane, p) + first;
            const int word = word_of(at), words = word + rows.count * p.w.in;
            bytes = (words + 3) / 4 * 16;
            from = at - word;
          }
          ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
          if (of_channel &&
              (from < input || static_cast<const char*>(from) + bytes > reinterpret_cast<const char*>(end))) {
            const float* const numbers = static_cast<const float*>(from);
            const float* const at = channel_at(channels, s * slab + lane, p) + first;
            const int begin = numbers < input ? 4 : 0;
            const int stop = bytes / 4 - (numbers + bytes / 4 > end ? 4 : 0);
            copy_ends(reinterpret_cast<float*>(to), numbers, word_of(at), begin, stop,
                      word_of(at) + rows.count * p.w.in);
            to += begin * 4;
            from = numbers + begin;
            bytes = max(stop - begin, 0) * 4;
          }
          ptx::mbarrier_arrive_expecting(shared.full[ring.slot], bytes);
          if (bytes > 0) ptx::bulk_copy(to, from, bytes, shared.full[ring.slot]);
        }
      },
      [](int, int) {});
}

// ---- The consumers ----------------------------------------------------------------------------------------

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
  float total[split ? tiles : 1][slots][split ? sums : 1];  // f32 totals to which sums move
  int begun = 0;                                            // bit s: slot s has sums

  __device__ __forceinline__ void locate(const Tile& tile, int warpgroup, const Plan& p) {
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

  __device__ __forceinline__ void gather(Raw& raw, const Addresses& at, const Tap& tap) const {
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

  /// Adds cells times the weights of a tap, for the slots in `mask`.
  template <int mask>
  __device__ __forceinline__ void multiply_tap(const Cells& a, uint64_t b, const Plan& p) {
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

  /// Adds a stage times its weights, for the slots in `mask`. Its products are done when it returns.
  template <int mask>
  __device__ __forceinline__ void multiply_stage(uint32_t low, uint32_t high, uint64_t b, const Plan& p) {
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
          gather(raw[1 - n], at, p.tap[first + n + 1]);  // the list has one unused tap at its end
          convert(a[n], raw[n]);
          multiply_tap<mask>(a[n], b + n * tap_step, p);
          ptx::wgmma_wait<1>();  // for the previous tap
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
                                                const Plan& p) {
    if (live == mask)
      multiply_stage<mask>(low, high, b, p);
    else if constexpr (mask > 1)
      multiply_live<mask - 1>(live, low, high, b, p);
  }

  /// Calls f with the slot, a run-time number, as an integral constant.
  template <class F>
  static __device__ __forceinline__ void with_slot(int slot, F f) {
    if (slots == 1 || slot == 0) return f(std::integral_constant<int, 0>{});
    if constexpr (slots > 1)
      if (slots == 2 || slot == 1) return f(std::integral_constant<int, 1>{});
    if constexpr (slots > 2) f(std::integral_constant<int, 2>{});
  }

  /// Stores a slot's sums. `to` and `bias` are at the thread's first channel; `here` channels of the group
  /// exist from there on.
  template <int slot>
  __device__ __forceinline__ void store(int first_cell, int warpgroup, const float* bias, float* to, int here,
                                        int64_t* failed, const Plan& p) const {
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
    if (split && !finite) *failed = 1;
  }

  __device__ __forceinline__ void consume(const float* __restrict__ input, const Columns& columns,
                                          const Shared& shared, int warpgroup, const float* __restrict__ bias,
                                          float* __restrict__ output, int64_t* failed, const Plan& p) {
    Ring ring{p.stages};
    const int own_low = channel_of(threadIdx.x % 4, p.neighbours),
              own_high = channel_of(threadIdx.x % 4 + 4, p.neighbours);
    const int pair = columns.channel_block * channels + threadIdx.x % 4 * 2;  // of channels in eight
    const int here = p.out_per_group - pair;
    if (bias) bias += columns.group * p.out_per_group + pair;
    Tile tile{};
    const float* channels_in = nullptr;
    int row = 0;
    walk(
        p, Block::shape, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x),
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
          with_slot(slot, [&](auto s) { store<s>(tile.cell, warpgroup, bias, to, here, failed, p); });
        });
  }
};

// ---- The kernel -------------------------------------------------------------------------------------------

template <class Block>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const float* __restrict__ input, const unsigned char* __restrict__ packed,
                   const float* __restrict__ bias, float* __restrict__ output, int64_t* failed,
                   const __grid_constant__ Plan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ ptx::Mbarrier full[most_stages], empty[most_stages];
  const Shared shared{memory, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], Block::copying_lanes);
      ptx::mbarrier_init(empty[i], consumer_threads);
    }
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  const Columns columns{static_cast<int>(blockIdx.y) / p.channel_blocks,
                        static_cast<int>(blockIdx.y) % p.channel_blocks};
  // Read from lane 0, so that the compiler knows that the value is the same in a warp.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup == warpgroups) {
    ptx::shrink_registers_to<loader_registers>();
    if (threadIdx.x / 32 % 4 == 0) load<Block>(input, packed, columns, shared, p);
  } else {
    ptx::grow_registers_to<consumer_registers>();
    Products<Block> products;
    products.consume(input, columns, shared, warpgroup, bias, output, failed, p);
  }
#endif
}

}  // namespace vox::cuda::conv::gather

#pragma once

// conv3d with strides of 1 to 4 and conv_transpose3d with strides of 1 and 2 on Hopper's tensor cores
// (wgmma): f32 rounded to TF32 or bf16, and 16-bit tensors.
//
// Seen from the coarse grid, every tap is a shift by whole cells and belongs to one of the phases of the fine
// grid (Note [Phases] in plan.h). So both ops are sums of plain products,
//
//   conv_transpose3d   output[phase][m, n] = bias[n] + sum over k, shifts  input[m + shift, k] * weight[k, n]
//   conv3d             output[m, n] = bias[n] + sum over k, phases, shifts  input[phase][m + shift, k] * ...
//   m: a coarse cell     n: an output channel of the group     k: an input channel
//
// and a block loads what its tile of cells reads, with its halo, once for all of them. Phases without taps
// are filled with the bias: every output is written once, and no product with an inserted zero is computed.
//
// What a block owns: it works on tiles of 2 x `tiles` x 64 cells of one image, times `slots` phases times
// `channels`, in the registers of two warpgroups of consumers. Two groups of producers fill stages in turn. A
// stage is 8 channels of the window, or 16 where operands have 16 bits (times k_steps), as
// [granule][depth][position]. That is an operand of wgmma without swizzle, in which every shift is a start
// address. The phases of conv3d's input along w are planes of their own, read in one pass so that loads
// coalesce. Products may read a few positions behind a window, for cells whose results are not stored or that
// are multiplied by zero there (plan.cpp). Weights come packed in the order of their use: once for all tiles
// if they fit, else with each stage. Blocks share no results: no atomics, and the bits never change.
//
// How sums leave registers (Form in plan.h, and the folder store/):
//
//   rows.cuh   cells x channels: lanes exchange sums until a warp has 32 neighbours in a row of a channel
//   wide.cuh   32 channels at both phases are the rows of an instruction, and cells its columns; sums then
//              have the order of the output, and leave registers 16 bytes at a time
//
// Values that are not finite: Note [Values that are not finite] in common/operands.cuh; for wide,
// store/wide.cuh.
//
// What limits it: README.md and NOTES.md.

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/conv3d/strided/block.cuh>
#include <voxgrad/cuda/conv3d/strided/store/rows.cuh>
#include <voxgrad/cuda/conv3d/strided/store/wide.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>

namespace vox::cuda::conv::strided {

// ---- The producers ----------------------------------------------------------------------------------------

// Producers load input from global memory to the stages, and round it.

/// The format of 8 channels of a position as loaded and in a stage: a granule of 16-bit numbers, or two of
/// TF32.
template <class Block>
struct Octet {
  using Storage = typename Block::Storage;
  using Operand = typename Block::Operand;
  static constexpr bool as_loaded = sizeof(Storage) == 2;
  using Number = std::conditional_t<as_loaded, uint16_t, float>;
  static constexpr int granules = 8 / Block::granule, in_step = 2 / granules;

  static __device__ __forceinline__ void store(unsigned char* at, int granule_bytes, const Number (&v)[8]) {
    if constexpr (Operand::operand == ptx::Operand::tf32) {
      *reinterpret_cast<uint4*>(at) = make_uint4(rounded_to_tf32(v[0]), rounded_to_tf32(v[1]),
                                                 rounded_to_tf32(v[2]), rounded_to_tf32(v[3]));
      *reinterpret_cast<uint4*>(at + granule_bytes) = make_uint4(
          rounded_to_tf32(v[4]), rounded_to_tf32(v[5]), rounded_to_tf32(v[6]), rounded_to_tf32(v[7]));
    } else {
      uint32_t pair[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if constexpr (as_loaded)
          pair[i] = v[2 * i] | static_cast<uint32_t>(v[2 * i + 1]) << 16;
        else
          pair[i] = ptx::packed<Operand::operand>(v[2 * i], v[2 * i + 1]);
      *reinterpret_cast<uint4*>(at) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
  }

  /// Stores one of the 8 channels.
  static __device__ __forceinline__ void store_one(unsigned char* at, int granule_bytes, int channel,
                                                   Number v) {
    at += channel / Block::granule * granule_bytes + channel % Block::granule * (16 / Block::granule);
    if constexpr (Operand::operand == ptx::Operand::tf32)
      *reinterpret_cast<uint32_t*>(at) = rounded_to_tf32(v);
    else if constexpr (as_loaded)
      *reinterpret_cast<uint16_t*>(at) = v;
    else
      *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(ptx::packed<Operand::operand>(v, v));
  }
};

/// Which positions of a window a thread of a group loads: `first` and every `step`-th further on, in one of
/// the input's phases along w.
struct Share {
  int lanes, phase, first, step;
  int step_rows, step_columns;  // `step` as rows and columns
};
/// The share of a thread, with `lanes` for each position, as the plan says.
__device__ __forceinline__ Share share_of(int thread, int lanes, const Plan& p) {
  const int step = producers / lanes;
  const Place place = place_of(step, p);
  return {lanes, thread % lanes, thread / lanes, step, place.row, place.column};
}

/// Fills the table of a thread with the offsets in bytes, in an input channel, of the positions that it
/// loads for a kind's window; ~0 outside. Only this thread reads it.
__device__ __forceinline__ void locate(uint32_t* table, const Share& share, int number_bytes,
                                       const Tile& tile, const Kind& kind, const Plan& p) {
  if (share.phase >= p.phases_w) return;
  const int low_w = p.low_w * p.w.in_step + (p.transposed ? 0 : p.phase_w[share.phase]);
  const int planes = kind.planes, in_plane = kind.plane;
  const int first_d = (tile.depth + kind.low_d) * p.d.in_step + kind.phase_d,
            first_h = kind.low_h * p.h.in_step + kind.phase_h;
  const Place first = place_of(tile.position, p);
  table += share.phase;
  int i = share.first;  // in the plane
  for (int plane = 0; plane < planes; ++plane, i -= in_plane) {
    const int d = first_d + plane * p.d.in_step;
    const bool inside_d = within(d, p.d.in);
    const int further = rows_in(first.column + i, p);
    int row = first.row + further, column = first.column + i - further * p.pitch;
    for (; i < in_plane; i += share.step) {
      const int h = row * p.h.in_step + first_h, w = column * p.w.in_step + low_w;
      const bool inside = inside_d && within(h, p.h.in) && within(w, p.w.in);
      table[(plane * in_plane + i) * share.lanes] =
          inside ? static_cast<uint32_t>((d * p.h.in + h) * p.w.in + w) * number_bytes : ~0u;
      row += share.step_rows;
      column += share.step_columns;
      if (column >= p.pitch) column -= p.pitch, ++row;
    }
  }
}

/// A thread's part of a window's remainder: the positions beyond whole rounds of a group, if they are so few
/// that each thread can load a single element of them. (In a full round most threads would load nothing.)
struct Remainder {
  int position, channel;  // -1: none
  uint32_t offset;        // as in the table
};
/// How many of a window's `count` positions, the last ones, are loaded as single elements.
__device__ __forceinline__ int single_positions(int count) {
  const int beyond = count % producers;
  return count >= producers && beyond <= producers / 8 ? beyond : 0;
}
__device__ __forceinline__ Remainder locate_remainder(int thread, int positions, int number_bytes,
                                                      const Tile& tile, const Kind& kind, const Plan& p) {
  if (thread / 8 >= positions) return {-1, 0, ~0u};
  const int in_plane = kind.plane - positions + thread / 8;
  const Place at = place_of(tile.position + in_plane, p);
  const int d = (tile.depth + kind.low_d + kind.planes - 1) * p.d.in_step + kind.phase_d,
            h = (at.row + kind.low_h) * p.h.in_step + kind.phase_h, w = (at.column + p.low_w) * p.w.in_step;
  const bool inside = within(d, p.d.in) && within(h, p.h.in) && within(w, p.w.in);
  return {(kind.planes - 1) * kind.plane + in_plane, thread % 8,
          inside ? static_cast<uint32_t>((d * p.h.in + h) * p.w.in + w) * number_bytes : ~0u};
}

/// Loads 8 channels from `from` on, at up to `batch` positions; zeros where there is no cell.
template <bool all, int batch, class Number>
__device__ __forceinline__ void load(Number (&v)[batch][8], const uint32_t (&offset)[batch], const char* from,
                                     int64_t channel_bytes, int left) {
#pragma unroll
  for (int u = 0; u < batch; ++u) {
    const char* at = from + offset[u];
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      v[u][c] = offset[u] != ~0u && (all || c < left) ? __ldg(reinterpret_cast<const Number*>(at)) : Number{};
      at += channel_bytes;
    }
  }
}
/// The same for the positions of every producers-th entry of a table of `count`, from `first` on.
template <int batch, class Number>
__device__ __forceinline__ void load_entries(Number (&v)[batch][8], const uint32_t* table, int first,
                                             int count, const char* from, int64_t channel_bytes, int left) {
  uint32_t offset[batch];
#pragma unroll
  for (int u = 0; u < batch; ++u) {
    const int i = first + u * producers;
    offset[u] = i < count ? table[i] : ~0u;
  }
  if (left >= 8)
    load<true>(v, offset, from, channel_bytes, left);
  else
    load<false>(v, offset, from, channel_bytes, left);
}

/// A stage that a group of producers fills: the positions in `table`, and for trimmed windows `remainder`.
struct Filling {
  const uint32_t* table;
  int count;  // entries of the table
  const Remainder& remainder;
  const char* image;  // the input's first channel
  int64_t channel_bytes;
  int k_block, slot;
  unsigned char* stage;
  int own_position, granule_bytes;
  int step_bytes;  // from one position that a thread stores to its next one
};

/// Calls fill(filling, wait) for every stage of a group of producers. It calls wait() before it writes to the
/// stage; from then on the stage is free, and its weights come, if they are not resident.
template <class Block, class Fill>
__device__ __forceinline__ void produce(const typename Block::Storage* __restrict__ input,
                                        const unsigned char* __restrict__ packed, const Columns& columns,
                                        const Shared& shared, int producer_group, const Plan& p, Fill fill) {
  const int thread = threadIdx.x % producers;
  constexpr int number_bytes = sizeof(typename Block::Storage);
  const int positions = 128 * Block::tiles / p.depths;
  const Share share = share_of(thread, Block::wide ? 1 : p.lanes_w, p);
  const unsigned char* const weights =
      packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.block_weights;
  uint32_t* const table = shared.table + producer_group * (p.table_bytes / 8);
  Ring ring{p.stages};
  int turn = 0;
  if (thread == 0 && producer_group == 0 && p.weight_bytes) {
    ptx::mbarrier_arrive_expecting(*shared.weights_here, p.weight_bytes);
    ptx::bulk_copy(shared.weights, weights, p.weight_bytes, *shared.weights_here);
  }
  for (int number = blockIdx.x; number < p.tiles(); number += gridDim.x) {
    const Tile tile = tile_of(number, positions, p);
    const char* const image = reinterpret_cast<const char*>(
        input + (int64_t{tile.image} * p.groups + columns.group) * p.in_per_group * p.in_channel);
    for (int k = 0; k < p.kinds; ++k) {
      const Kind& kind = p.kind[k];
      if (kind.stage_weights == 0) continue;
      int count = share.phase < p.phases_w ? kind.planes * kind.plane * share.lanes : 0;
      const int singles = Block::trims ? single_positions(count) : 0;
      count -= singles;
      Remainder remainder{-1, 0, ~0u};
      const int own_position = share.phase * kind.phase_pitch + share.first;
      const int granule_bytes = kind.granule_pitch * 16;
      const unsigned char* stage_weights = weights + kind.weights;
      bool located = false;
      for (int k_block = 0; k_block < p.k_blocks;
           ++k_block, stage_weights += kind.stage_weights, ring.advance(), turn ^= 1) {
        if (turn != producer_group) continue;
        if (!located) {
          // Warps that drift apart share fewer lines in L1: the barrier gains 3 % of conv3d. (Scaled
          // producers have a barrier for every stage.)
          if (!Block::scaled && !p.transposed) ptx::named_barrier<producers>(3 + producer_group);
          locate(table, share, number_bytes, tile, kind, p);
          if constexpr (Block::trims)
            remainder = locate_remainder(thread, singles, number_bytes, tile, kind, p);
          located = true;
        }
        unsigned char* const stage =
            shared.stages + ring.slot * p.stage_bytes + (Block::trims ? kind.begin : 0);
        bool waited = false;
        fill(Filling{table, count, remainder, image, int64_t{p.in_channel} * number_bytes, k_block, ring.slot,
                     stage, own_position, granule_bytes, share.step * 16},
             [&] {
               if (waited) return;
               ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
               waited = true;
               if (thread == 0 && !p.weight_bytes) {
                 ptx::mbarrier_arrive_expecting(shared.full[ring.slot], kind.stage_weights);
                 ptx::bulk_copy(stage + p.k_steps * 2 * granule_bytes, stage_weights, kind.stage_weights,
                                shared.full[ring.slot]);
               }
             });
        if (!waited) ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);  // lanes without a phase
        // Every lane arrives: racecheck does not follow lane 0 arriving for the others, and it costs nothing.
        ptx::mbarrier_arrive(shared.full[ring.slot]);
      }
    }
  }
}

/// Fills a stage with rounded numbers.
template <class Block, class Wait>
__device__ __forceinline__ void fill_rounded(const Filling& f, const Plan& p, Wait wait) {
  using Octet = strided::Octet<Block>;
  using Number = typename Octet::Number;
  constexpr int batch = Block::batch;
  const int thread = threadIdx.x % producers;
  const Remainder& remainder = f.remainder;
  for (int octet = 0; octet < p.k_steps * Octet::in_step; ++octet) {
    const int channel = (f.k_block * p.k_steps * Octet::in_step + octet) * 8, left = p.in_per_group - channel;
    const char* const from = f.image + channel * f.channel_bytes;
    unsigned char* const of_octet = f.stage + octet * Octet::granules * f.granule_bytes;
    unsigned char* to = of_octet + f.own_position * 16;
    Number single{};
    if constexpr (Block::trims)
      if (remainder.offset != ~0u && remainder.channel < left)
        single = __ldg(
            reinterpret_cast<const Number*>(from + remainder.offset + remainder.channel * f.channel_bytes));
    for (int first = thread; first < f.count; first += batch * producers) {
      Number v[batch][8];
      load_entries(v, f.table, first, f.count, from, f.channel_bytes, left);
      wait();
#pragma unroll
      for (int u = 0; u < batch; ++u)
        if (first + u * producers < f.count) Octet::store(to + u * f.step_bytes, f.granule_bytes, v[u]);
      to += batch * f.step_bytes;
    }
    if constexpr (Block::trims)
      if (remainder.position >= 0)
        Octet::store_one(of_octet + remainder.position * 16, f.granule_bytes, remainder.channel, single);
  }
}

// ---- The store --------------------------------------------------------------------------------------------

// How a block's sums leave registers.
template <class Block>
struct ResultsOf {
  using Type = Rows<Block>;
};
template <class Block>
requires Block::wide struct ResultsOf<Block> {
  using Type = WideRows<Block>;
};
template <class Block>
using Results = typename ResultsOf<Block>::Type;

// ---- The consumers ----------------------------------------------------------------------------------------

// Two warpgroups multiply stages and weights. Sums are in their registers.

/// Copies the bias of a block's channels to shared memory.
template <class Block>
__device__ __forceinline__ void load_bias(const typename Block::Storage* bias, const Columns& columns,
                                          const Shared& shared, const Plan& p) {
  for (int c = threadIdx.x; c < Block::channels + 8; c += consumer_threads) {
    const int in_group = columns.channel_block * Block::channels + c;
    shared.bias[c] = bias && c < Block::channels && in_group < p.out_per_group
                         ? static_cast<float>(bias[columns.group * p.out_per_group + in_group])
                         : 0.0f;
  }
}

/// Calls f(tile, row_block, for_each_stage) for each block of rows of a block's tiles.
/// for_each_stage(multiply) calls multiply(stage, weights, first_position, k, slot) for its stages, where k
/// is the number of the kind.
template <class Block, class F>
__device__ __forceinline__ void consume_tiles(const Shared& shared, int warpgroup, const Plan& p, F f) {
  constexpr int tiles = Block::tiles;
  ptx::named_barrier<consumer_threads>(5);  // the bias is there
  Ring ring{p.stages};
  if (p.weight_bytes) ptx::mbarrier_wait(*shared.weights_here, 0);
  for (int number = blockIdx.x; number < p.tiles(); number += gridDim.x) {
    const Tile tile = tile_of(number, 128 * tiles / p.depths, p);
    for (int row_block = 0; row_block < p.row_blocks; ++row_block)
      f(tile, row_block, [&](auto multiply) {
        for (int k = p.first_kind[row_block]; k < p.first_kind[row_block + 1]; ++k) {
          const Kind& kind = p.kind[k];
          if (kind.stage_weights == 0) continue;
          const int first_position = p.depths == 2 ? warpgroup * kind.plane : warpgroup * tiles * 64;
          for (int k_block = 0; k_block < p.k_blocks; ++k_block) {
            const unsigned char* const stage =
                shared.stages + ring.slot * p.stage_bytes + (Block::trims ? kind.begin : 0);
            const unsigned char* const weights =
                p.weight_bytes ? shared.weights + kind.weights + k_block * kind.stage_weights
                               : stage + p.k_steps * kind.granule_pitch * 32;
            ptx::mbarrier_wait(shared.full[ring.slot], ring.parity);
            // For the producers' stores; in the producers the fence would wait for all of their loads.
            ptx::fence_proxy_async();
            multiply(stage, weights, first_position, k, ring.slot);
            ptx::mbarrier_arrive(shared.empty[ring.slot]);
            ring.advance();
          }
        }
      });
  }
}

template <class Block>
struct Products {
  using Storage = typename Block::Storage;
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int instructions = Block::instructions, sums = Block::sums;
  static constexpr bool wide = Block::wide;
  using Sums = float[instructions][slots * sums];

  /// The products of one stage of `k_steps` k-steps. They are done when it returns.
  template <int k_steps>
  static __device__ __forceinline__ void multiply(Sums& sum, const unsigned char* stage,
                                                  const unsigned char* weights, int first_position,
                                                  const Kind& kind, const Plan& p) {
    const int granule = kind.granule_pitch * 16;
    const uint64_t cells0 =
        ptx::shared_matrix(stage + first_position * 16, granule, wide ? 128 : cells_apart(tiles) * 16);
    const uint64_t weights0 = ptx::shared_matrix(weights, Block::weight_rows * 16, 128);
    // The lower halves hold the addresses, in units of 16 bytes.
    const uint64_t cells_high = cells0 >> 32 << 32, weights_high = weights0 >> 32 << 32;
    const uint32_t cells_low = static_cast<uint32_t>(cells0), weights_low = static_cast<uint32_t>(weights0);
    ptx::wgmma_fence();
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const int last = kind.first[slot + 1];
#pragma unroll 2
      for (int i = kind.first[slot]; i < last; ++i) {
        const uint32_t cells = cells_low + p.item[i].position, of_item = weights_low + p.item[i].weights;
#pragma unroll
        for (int step = 0; step < k_steps; ++step)
#pragma unroll
          for (int t = 0; t < instructions; ++t) {
            const uint64_t a = cells_high | (cells + step * (granule / 8) + t * 8),
                           b = weights_high | (of_item + step * Block::weight_rows * 2);
            ptx::wgmma<Block::Operand::operand, Block::columns>(sum[t] + slot * sums, wide ? b : a,
                                                                wide ? a : b);
          }
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
  }

  /// Sets the sums to the bias of their channels.
  static __device__ __forceinline__ void begin(Sums& sum, const float* bias) {
    if constexpr (wide) {
      const float first = bias[wide_channel(threadIdx.x % 128 / 16, threadIdx.x % 32 / 4)];
#pragma unroll
      for (int i = 0; i < slots * sums; ++i) sum[0][i] = ptx::opaque(first);
    } else {
      const float* const pair_bias = bias + threadIdx.x % 4 * 2;
#pragma unroll
      for (int j = 0; j < sums / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float first = pair_bias[j * 8 + e];
#pragma unroll
          for (int t = 0; t < tiles; ++t)
#pragma unroll
            for (int slot = 0; slot < slots; ++slot)
              sum[t][slot * sums + j * 4 + e] = sum[t][slot * sums + j * 4 + 2 + e] = first;
        }
    }
  }

  static __device__ __forceinline__ void consume(const Columns& columns, const Shared& shared, int warpgroup,
                                                 const Operands<Block>& from, Storage* __restrict__ output,
                                                 const Plan& p) {
    load_bias<Block>(from.bias, columns, shared, p);
    consume_tiles<Block>(shared, warpgroup, p, [&](const Tile& tile, int row_block, auto for_each_stage) {
      Sums sum;
      begin(sum, shared.bias);
      for_each_stage(
          [&](const unsigned char* stage, const unsigned char* weights, int first_position, int k, int) {
            const Kind& kind = p.kind[k];
            if (p.k_steps == 4)
              multiply<4>(sum, stage, weights, first_position, kind, p);
            else if (p.k_steps == 2)
              multiply<2>(sum, stage, weights, first_position, kind, p);
            else
              multiply<1>(sum, stage, weights, first_position, kind, p);
          });
      if constexpr (wide)
        Results<Block>::write(sum[0], shared, tile, columns, row_block, warpgroup, from, output, p);
      else
        Results<Block>::write(sum, shared, tile, columns, row_block, warpgroup, output, p);
    });
  }
};

// ---- The kernel -------------------------------------------------------------------------------------------

/// Divides the block's shared memory as the plan says, and initialises the barriers. The caller synchronises
/// the block.
__device__ __forceinline__ Shared shared_of_block(const Plan& p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ ptx::Mbarrier full[most_stages], empty[most_stages], weights_here;
  Shared shared{memory, nullptr, nullptr, nullptr, full, empty, &weights_here};
  shared.weights = shared.stages + p.stages * p.stage_bytes;
  shared.table = reinterpret_cast<uint32_t*>(shared.weights + p.weight_bytes);
  shared.bias = reinterpret_cast<float*>(shared.weights + p.weight_bytes + p.table_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], producers + (p.weight_bytes ? 0 : 1));
      ptx::mbarrier_init(empty[i], consumer_threads);
    }
    ptx::mbarrier_init(weights_here, 1);
    ptx::mbarrier_init_done();
  }
  return shared;
}

/// Calls produce(group) or consume(warpgroup) for a warp, with that role's registers.
template <class Block, class Produce, class Consume>
__device__ __forceinline__ void divide_roles(Produce produce, Consume consume) {
  // Read from lane 0, so that the compiler knows that the value is the same in a warp.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup >= 2) {
    if constexpr (Block::producer_registers < 128) ptx::shrink_registers_to<Block::producer_registers>();
    produce(warpgroup - 2);
  } else {
    if constexpr (Block::consumer_registers > 128) ptx::grow_registers_to<Block::consumer_registers>();
    consume(warpgroup);
  }
}

template <class Block>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const __grid_constant__ Operands<Block> from, const unsigned char* __restrict__ packed,
                   typename Block::Storage* __restrict__ output, const __grid_constant__ Plan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const Shared shared = shared_of_block(p);
  if constexpr (Block::trims)
    for (int i = threadIdx.x; i < p.stages * p.zero_bytes / 4; i += block_threads) {
      const int stage = i / (p.zero_bytes / 4), word = i % (p.zero_bytes / 4);
      reinterpret_cast<uint32_t*>(shared.stages + stage * p.stage_bytes + p.window_bytes)[word] = 0;
    }
  __syncthreads();
  const Columns columns = columns_of_block(p);
  divide_roles<Block>(
      [&](int group) {
        produce<Block>(from.input, packed, columns, shared, group, p,
                       [&](const Filling& f, auto wait) { fill_rounded<Block>(f, p, wait); });
      },
      [&](int warpgroup) { Products<Block>::consume(columns, shared, warpgroup, from, output, p); });
#endif
}

}  // namespace vox::cuda::conv::strided

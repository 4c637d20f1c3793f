#pragma once

// The producers of strided_wgmma.cuh: input from global memory, rounded, to the stages.

#include <voxgrad/cuda/conv3d/rounded_tf32.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_shared.cuh>
#include <voxgrad/cuda/ptx/barrier.cuh>
#include <voxgrad/cuda/ptx/packed.cuh>

#include <type_traits>

namespace vox::cuda::strided {

/// What 8 channels of a position are as loaded, and how they lie in a stage: a granule of 16 bits, or two of
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

  /// One of the 8.
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

/// Which positions of a window a thread of a group brings: `first` and each `step`-th further on, in one of
/// the input's phases along w.
struct Share {
  int lanes, phase, first, step;
  int step_rows, step_columns;  // the step as a Place
};
/// `lanes` for each position, as the plan says.
__device__ __forceinline__ Share share_of(int thread, int lanes, const StridedPlan& p) {
  const int step = producers / lanes;
  const Place place = place_of(step, p);
  return {lanes, thread % lanes, thread / lanes, step, place.row, place.column};
}

/// For those positions of a kind's window that a thread brings, where their input lies in a channel, in
/// bytes; ~0 outside. It is read by the thread alone.
__device__ __forceinline__ void locate(uint32_t* table, const Share& share, int number_bytes,
                                       const Tile& tile, const StridedKind& kind, const StridedPlan& p) {
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
    const bool inside_d = static_cast<unsigned>(d) < static_cast<unsigned>(p.d.in);
    const int further = rows_in(first.column + i, p);
    int row = first.row + further, column = first.column + i - further * p.pitch;
    for (; i < in_plane; i += share.step) {
      const int h = row * p.h.in_step + first_h, w = column * p.w.in_step + low_w;
      const bool inside = inside_d && static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in);
      table[(plane * in_plane + i) * share.lanes] =
          inside ? static_cast<uint32_t>((d * p.h.in + h) * p.w.in + w) * number_bytes : ~0u;
      row += share.step_rows;
      column += share.step_columns;
      if (column >= p.pitch) column -= p.pitch, ++row;
    }
  }
}

/// A thread's part of a window's rest: of the positions beyond whole rounds of a group, if they are so few
/// that a thread can bring a single element of them. (In a round of its own hardly anybody would load
/// anything, and all would wait.)
struct Rest {
  int position, channel;  // -1: none
  uint32_t offset;        // as in the table
};
/// How many of a window's `count` positions are brought so, the last ones.
__device__ __forceinline__ int single_positions(int count) {
  const int beyond = count % producers;
  return count >= producers && beyond <= producers / 8 ? beyond : 0;
}
__device__ __forceinline__ Rest locate_rest(int thread, int positions, int number_bytes, const Tile& tile,
                                            const StridedKind& kind, const StridedPlan& p) {
  if (thread / 8 >= positions) return {-1, 0, ~0u};
  const int in_plane = kind.plane - positions + thread / 8;
  const Place at = place_of(tile.position + in_plane, p);
  const int d = (tile.depth + kind.low_d + kind.planes - 1) * p.d.in_step + kind.phase_d,
            h = (at.row + kind.low_h) * p.h.in_step + kind.phase_h, w = (at.column + p.low_w) * p.w.in_step;
  const bool inside = static_cast<unsigned>(d) < static_cast<unsigned>(p.d.in) &&
                      static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in) &&
                      static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in);
  return {(kind.planes - 1) * kind.plane + in_plane, thread % 8,
          inside ? static_cast<uint32_t>((d * p.h.in + h) * p.w.in + w) * number_bytes : ~0u};
}

/// Loads 8 channels from `from` on, at up to `batch` positions; zeros where there is none.
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

template <class Block>
__device__ __forceinline__ void produce(const typename Block::Storage* __restrict__ input,
                                        const unsigned char* __restrict__ packed, const Columns& columns,
                                        const Shared& shared, int producer_group, const StridedPlan& p) {
  const int thread = threadIdx.x % producers;
  using Octet = strided::Octet<Block>;
  constexpr int batch = Block::batch;
  constexpr int number_bytes = sizeof(typename Block::Storage);
  const int positions = 128 * Block::tiles / p.depths;
  const Share share = share_of(thread, Block::wide ? 1 : p.lanes_w, p);
  const unsigned char* const weights =
      packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.block_weights;
  uint32_t* const table = shared.table + producer_group * (p.table_bytes / 8);
  const int64_t channel_bytes = int64_t{p.in_channel} * number_bytes;
  flat::Ring ring{p.stages};
  int turn = 0;
  if (thread == 0 && producer_group == 0 && p.weight_bytes) {
    ptx::mbarrier_arrive_expecting(*shared.weights_here, p.weight_bytes);
    ptx::bulk_copy(shared.weights, weights, p.weight_bytes, *shared.weights_here);
  }
  const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
  for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
    const Tile tile = tile_of(number, positions, p);
    const char* const image = reinterpret_cast<const char*>(
        input + (int64_t{tile.image} * p.groups + columns.group) * p.in_per_group * p.in_channel);
    for (int k = 0; k < p.kinds; ++k) {
      const StridedKind& kind = p.kind[k];
      if (kind.stage_weights == 0) continue;
      int count = share.phase < p.phases_w ? kind.planes * kind.plane * share.lanes : 0;
      const int singles = Block::trims ? single_positions(count) : 0;
      count -= singles;
      Rest rest{-1, 0, ~0u};
      const int own_position = share.phase * kind.phase_pitch + share.first;
      const int granule_bytes = kind.granule_pitch * 16;
      const unsigned char* stage_weights = weights + kind.weights;
      bool located = false;
      for (int slab = 0; slab < p.slabs;
           ++slab, stage_weights += kind.stage_weights, ring.advance(), turn ^= 1) {
        if (turn != producer_group) continue;
        if (!located) {
          // Warps that drift apart find less of each other's lines in L1: 3 % of conv3d.
          if (!p.transposed) ptx::named_barrier<producers>(3 + producer_group);
          locate(table, share, number_bytes, tile, kind, p);
          if constexpr (Block::trims) rest = locate_rest(thread, singles, number_bytes, tile, kind, p);
          located = true;
        }
        unsigned char* const stage =
            shared.stages + ring.slot * p.stage_bytes + (Block::trims ? kind.begin : 0);
        bool waited = false;
        for (int octet = 0; octet < p.k_steps * Octet::in_step; ++octet) {
          const int channel = (slab * p.k_steps * Octet::in_step + octet) * 8,
                    left = p.in_per_group - channel;
          const char* const from = image + channel * channel_bytes;
          unsigned char* const of_octet = stage + octet * Octet::granules * granule_bytes;
          unsigned char* to = of_octet + own_position * 16;
          typename Octet::Number single{};
          if constexpr (Block::trims)
            if (rest.offset != ~0u && rest.channel < left)
              single = __ldg(reinterpret_cast<const typename Octet::Number*>(from + rest.offset +
                                                                             rest.channel * channel_bytes));
          for (int first = thread; first < count; first += batch * producers) {
            uint32_t offset[batch];
            typename Octet::Number v[batch][8];
#pragma unroll
            for (int u = 0; u < batch; ++u) {
              const int i = first + u * producers;
              offset[u] = i < count ? table[i] : ~0u;
            }
            if (left >= 8)
              load<true>(v, offset, from, channel_bytes, left);
            else
              load<false>(v, offset, from, channel_bytes, left);
            if (!waited) {
              ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);
              waited = true;
              if (thread == 0 && !p.weight_bytes) {
                ptx::mbarrier_arrive_expecting(shared.full[ring.slot], kind.stage_weights);
                ptx::bulk_copy(stage + p.k_steps * 2 * granule_bytes, stage_weights, kind.stage_weights,
                               shared.full[ring.slot]);
              }
            }
#pragma unroll
            for (int u = 0; u < batch; ++u)
              if (first + u * producers < count) Octet::store(to + u * share.step * 16, granule_bytes, v[u]);
            to += batch * share.step * 16;
          }
          if constexpr (Block::trims)
            if (rest.position >= 0)
              Octet::store_one(of_octet + rest.position * 16, granule_bytes, rest.channel, single);
        }
        if (!waited) ptx::mbarrier_wait(shared.empty[ring.slot], ring.parity ^ 1);  // a lane without a phase
        // Every lane: racecheck does not see what lane 0 would say for the others, and it costs nothing.
        ptx::mbarrier_arrive(shared.full[ring.slot]);
      }
    }
  }
}

}  // namespace vox::cuda::strided

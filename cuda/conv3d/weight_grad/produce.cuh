#pragma once

#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/weight_grad/block.cuh>
#include <voxgrad/cuda/packet.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>

// The producers of kernel.cuh: they copy from global to shared memory, and round on the way. Addresses and
// bounds are computed once for a column of steps, into lists. Loads of big are of single elements, because
// rows of 66 or 98 have no alignment (of words of two in 16 bits, where rows are even and the stride along w
// is 1); of small, of four where its rows are aligned. Many are in flight at once.

namespace vox::cuda::conv::weight_grad {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Stores x at `place` of shared memory, as it is multiplied: f32 rounded to TF32, or whole where consumers
/// split it. Returns whether x cannot be split.
template <class Operand>
__device__ __forceinline__ bool store_factor(Stored<Operand> x, Stored<Operand>* place) {
  if constexpr (std::is_same_v<Operand, Tf32>)
    *place = __uint_as_float(ptx::to_tf32_uncut(x));
  else
    *place = x;
  if constexpr (Operand::parts > 1) return beyond_tf32(x);
  return false;
}

/// Loads one depth plane into its slot; missing channels are zero. An entry is `positions` neighbours, 1 or a
/// word of 2. Several entries of 8 channels each are in flight at once.
template <class Operand, int positions, int at_once>
__device__ __forceinline__ void load_plane(const Plan& p, const Shared& s, const Stored<Operand>* from,
                                           bool exists, int channels, uint32_t* to, int thread, bool& fails) {
  using T = Stored<Operand>;
  using Neighbours = std::conditional_t<positions == 2, uint32_t, T>;
  constexpr int per_word = 4 / sizeof(T);
  const int pitch = p.channel_pitch * per_word, shifted = p.copy_words * per_word - 1;
  const int entries = p.big_entries / positions;
  int entry = thread, octet = 0;
  const auto settle = [&] {
    while (entry >= entries) entry -= entries, ++octet;
  };
  settle();
  while (octet < p.octets) {
    Neighbours values[at_once][8];
    int places[at_once];
    bool begins_row[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const bool some = octet < p.octets;
      const Entry e = some ? s.big_from[entry] : Entry{-1, -1};
      places[j] = e.to < 0 ? -1 : e.to + octet * 8 * pitch;
      begins_row[j] = positions == 2 && entry * positions % p.across == 0;
      const int live = exists && e.from >= 0 && e.to >= 0 ? channels - octet * 8 : 0;
      const T* element = from + octet * 8 * p.big_cells + e.from;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        values[j][c] = 0;
        if (c < live) values[j][c] = __ldg(reinterpret_cast<const Neighbours*>(element));
        element += p.big_cells;
      }
      entry += producing_threads;
      settle();
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (places[j] < 0) continue;
      T* place = reinterpret_cast<T*>(to) + places[j];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const Neighbours x = values[j][c];
        if constexpr (positions == 2) {
          *reinterpret_cast<uint32_t*>(place) = x;
          if (shifted > 0) {
            if (!begins_row[j]) place[shifted] = static_cast<T>(x);  // a row's first is left out
            place[shifted + 1] = static_cast<T>(x >> 16);
          }
        } else {
          fails |= store_factor<Operand>(x, place);
          if (per_word == 2 && shifted > 0) place[shifted] = x;
        }
        place += pitch;
      }
    }
  }
}

/// Loads a tile of small, 4 channels of an entry at a time. An entry is `positions` neighbours, 1 or 4.
template <class Operand, int positions, int at_once>
__device__ __forceinline__ void load_tile(const Plan& p, const Shared& s, const Stored<Operand>* from,
                                          int channels, uint32_t* to, int thread, bool& fails) {
  using T = Stored<Operand>;
  using Neighbours = Packet<T, positions>;
  constexpr int granule = 16 / sizeof(T);
  const int entries = p.small_entries / positions;
  int entry = thread, group = 0;
  const auto settle = [&] {
    while (entry >= entries) entry -= entries, ++group;
  };
  settle();
  while (group < p.columns / 4) {
    Neighbours values[at_once][4];
    int places[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const bool some = group < p.columns / 4;
      const Entry e = some ? s.small_from[entry] : Entry{-1, -1};
      places[j] = some ? e.to + group * 4 * granule : -1;
      const int live = e.from >= 0 ? channels - group * 4 : 0;
      const T* element = from + group * 4 * p.small_cells + e.from;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        values[j][c] = {};
        if (c < live) values[j][c] = *reinterpret_cast<const Neighbours*>(element);
        element += p.small_cells;
      }
      entry += producing_threads;
      settle();
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (places[j] < 0) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Neighbours high, low;
#pragma unroll
        for (int i = 0; i < positions; ++i) {
          const T x = values[j][c].lane[i];
          if constexpr (Operand::parts > 1) {
            high.lane[i] = __uint_as_float(tf32_high_of_finite(__float_as_uint(x)));
            low.lane[i] = __uint_as_float(ptx::to_tf32_uncut(x - high.lane[i]));
            fails |= beyond_tf32(x);
          } else {
            store_factor<Operand>(x, &high.lane[i]);
          }
        }
        T* const place = reinterpret_cast<T*>(to) + places[j] + c * granule;
        *reinterpret_cast<Neighbours*>(place) = high;
        if constexpr (Operand::parts > 1) *reinterpret_cast<Neighbours*>(place + p.tile_words()) = low;
      }
    }
  }
}

/// Loads the tiles of all steps. Returns whether this thread met a value that cannot be split.
template <class Operand, int at_once>
__device__ __forceinline__ bool produce(const Plan& p, const Shared& s, const Slice& slice,
                                        const Stored<Operand>* big, const Stored<Operand>* small, bool pairs,
                                        bool quads, int64_t begin, int steps) {
  using T = Stored<Operand>;
  const int thread = threadIdx.x - consumers * group_threads;
  const PhasedAxis& depth = p.axis[0];
  const int64_t small_plane = int64_t{p.axis[1].small} * p.axis[2].small;
  const int64_t big_plane = int64_t{p.axis[1].big} * p.axis[2].big;
  const int buffer_words = p.parts * p.tile_words();
  bool fails = false;
  const int big_channels = p.big_per_group - slice.first_octet * 8;
  const int small_channels = p.small_per_group - slice.first_column;

  // The octet of rows whose address this thread computes.
  const OctetPlace octet = place_of_octet(p, slice, thread);

  int64_t i = begin / depth.small;  // column
  int d = static_cast<int>(begin % depth.small);
  Column column{};
  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    const bool fresh = step == 0 || d == 0;
    if (fresh) {
      column = column_of(p, i);
      ptx::named_barrier<producing_threads, 1>();  // all threads are done with the lists
      const int of_big = pairs ? 2 : 1, of_small = quads ? 4 : 1;
      for (int e = thread; e < p.big_entries / of_big; e += producing_threads)
        s.big_from[e] = big_entry(p, column, e * of_big);
      for (int e = thread; e < p.small_entries / of_small; e += producing_threads)
        s.small_from[e] = small_entry(p, column, e * of_small);
      ptx::named_barrier<producing_threads, 1>();
    }
    if (step >= 2) ptx::mbarrier_wait(s.empty[buffer], (step / 2 - 1) % 2);

    if (thread < p.products * 8)
      s.octets[buffer * p.products * 8 + thread] =
          slot_of(p, octet.phase, octet.plane, step) * p.slot_words + octet.place;
    if (thread == 0) {
      const int width = min(p.axis[2].tile, p.axis[2].small - column.w), chunks = (width + 15) / 16;
      s.extents[buffer] = {min(p.axis[1].tile, p.axis[1].small - column.h), chunks,
                           width - (chunks - 1) * 16};
    }
    const T* const from_big =
        big + ((int64_t{column.image} * p.groups + slice.group) * p.big_per_group + slice.first_octet * 8) *
                  p.big_cells;
    const auto load = [&](int phase, int plane) {
      const int z = (d + depth.first[phase] + plane) * depth.stride + depth.residue[phase];
      uint32_t* const slot = s.big + slot_of(p, phase, plane, step) * p.slot_words;
      const T* const plane_of_big = from_big + z * big_plane;
      const bool exists = within(z, depth.big);
      if (sizeof(T) == 2 && pairs)
        load_plane<Operand, 4 / sizeof(T), at_once>(p, s, plane_of_big, exists, big_channels, slot, thread,
                                                    fails);
      else
        load_plane<Operand, 1, at_once>(p, s, plane_of_big, exists, big_channels, slot, thread, fails);
    };
    for (int phase = 0; phase < depth.phases; ++phase) load(phase, depth.span[phase] - 1);
    const T* const from_small =
        small +
        ((int64_t{column.image} * p.groups + slice.group) * p.small_per_group + slice.first_column) *
            p.small_cells +
        d * small_plane;
    uint32_t* const tile = s.small + buffer * buffer_words;
    if (quads)
      load_tile<Operand, 4, (at_once * 4 / sizeof(T) + 1) / 3>(p, s, from_small, small_channels, tile, thread,
                                                               fails);
    else
      load_tile<Operand, 1, at_once>(p, s, from_small, small_channels, tile, thread, fails);
    if (fresh && p.deep) {  // the previous step may still use the other planes' slots
      if (step >= 1) ptx::mbarrier_wait(s.empty[1 - buffer], (step - 1) / 2 % 2);
      for (int phase = 0; phase < depth.phases; ++phase)
        for (int plane = 0; plane + 1 < depth.span[phase]; ++plane) load(phase, plane);
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(s.full[buffer]);
    if (++d == depth.small) d = 0, ++i;
  }
  return fails;
}

#endif

}  // namespace vox::cuda::conv::weight_grad

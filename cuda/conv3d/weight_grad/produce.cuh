#pragma once

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/weight_grad/block.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>

// The producers of kernel.cuh: they copy from global to shared memory, and round on the way. Addresses and
// bounds are computed once for a column of steps, into lists. Loads are of 4 bytes, because rows of 66 or 98
// floats have no alignment (of 16 bytes where the rows of small are aligned), and many are in flight at once.

namespace vox::cuda::conv::weight_grad {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A column of steps: the depths of one tile of coarse rows.
struct Column {
  int image, h, w;  // the first coarse cell
};

__device__ __forceinline__ Column column_of(const Plan& p, int64_t i) {
  const int64_t by_h = i / p.axis[2].tiles;
  return {static_cast<int>(by_h / p.axis[1].tiles), static_cast<int>(by_h % p.axis[1].tiles) * p.axis[1].tile,
          static_cast<int>(i % p.axis[2].tiles) * p.axis[2].tile};
}

__device__ __forceinline__ bool within(int i, int size) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

/// Lists the elements of big in the order of memory: neighbours along w are neighbours in the list.
__device__ void list_big(const Plan& p, const Shared& s, const Column& column, int thread) {
  const PhasedAxis &h = p.axis[1], &w = p.axis[2];
  const int across = (w.tile + w.reach) * w.phases;
  for (int i = thread; i < p.big_entries; i += producing_threads) {
    const int row = i / across, cell = i % across / w.phases + w.low, w_phase = i % w.phases;
    int h_phase = 0;
    while (h_phase + 1 < h.phases && row >= h.offset[h_phase + 1]) ++h_phase;
    const int y = (column.h + h.first[h_phase] + row - h.offset[h_phase]) * h.stride + h.residue[h_phase];
    const int x = (column.w + cell) * w.stride + w.residue[w_phase];
    const int to = cell - w.first[w_phase];
    s.big_from[i] = {within(y, h.big) && within(x, w.big) ? y * w.big + x : -1,
                     within(to, w.tile + w.span[w_phase] - 1) ? row * w.extent + w.offset[w_phase] + to : -1};
  }
}

/// Lists the elements of small, or the first of every 4.
__device__ void list_small(const Plan& p, const Shared& s, const Column& column, bool quads, int thread) {
  const PhasedAxis &h = p.axis[1], &w = p.axis[2];
  const int each = quads ? 4 : 1;
  for (int i = thread; i < p.small_entries / each; i += producing_threads) {
    const int position = i * each, y = column.h + position / w.tile, x = column.w + position % w.tile;
    s.small_from[i] = {y < h.small && x < w.small ? y * w.small + x : -1,
                       position / 4 * p.plane_words + position % 4};
  }
}

/// An element as it is in memory (f32, or the bits of a bf16 or f16), and its factor for the tensor core.
/// 16-bit numbers are TF32 numbers, so they are not rounded.
template <class T>
struct Loaded {
  T of;
  __device__ __forceinline__ float value(Storage storage) const {
    if constexpr (std::is_same_v<T, float>)
      return of;
    else
      return storage == Storage::bf16 ? __uint_as_float(uint32_t{of} << 16)
                                      : detail::float16_value_on_gpu(of);
  }
  __device__ __forceinline__ uint32_t factor(Storage storage) const {
    if constexpr (std::is_same_v<T, float>)
      return ptx::to_tf32_uncut(of);
    else
      return __float_as_uint(value(storage));
  }
};

/// Four elements.
template <class T>
struct LoadedQuad {
  static_assert(sizeof(T) == 4);
  float4 of;
  static __device__ __forceinline__ LoadedQuad at(const float* p) {
    return {__ldg(reinterpret_cast<const float4*>(p))};
  }
  __device__ __forceinline__ Loaded<float> operator[](int i) const {
    return {i == 0 ? of.x : i == 1 ? of.y : i == 2 ? of.z : of.w};
  }
};
template <>
struct LoadedQuad<uint16_t> {
  uint2 of;
  static __device__ __forceinline__ LoadedQuad at(const uint16_t* p) {
    return {__ldg(reinterpret_cast<const uint2*>(p))};
  }
  __device__ __forceinline__ Loaded<uint16_t> operator[](int i) const {
    return {static_cast<uint16_t>((i < 2 ? of.x : of.y) >> i % 2 * 16)};
  }
};

/// Brings a plane of big, `channels` of which exist, to its slot. Several elements of 8 channels each are in
/// flight at once.
template <bool split, int at_once, class T>
__device__ __forceinline__ void bring_plane(const Plan& p, const Shared& s, const T* from, Storage storage,
                                            bool exists, int channels, uint32_t* to, int thread,
                                            bool& fails) {
  int entry = thread, octet = 0;
  const auto settle = [&] {
    while (entry >= p.big_entries) entry -= p.big_entries, ++octet;
  };
  settle();
  while (octet < p.octets) {
    Loaded<T> values[at_once][8];
    int places[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const bool some = octet < p.octets;
      const Entry e = some ? s.big_from[entry] : Entry{-1, -1};
      places[j] = e.to < 0 ? -1 : e.to + octet * 8 * p.channel_pitch;
      const int live = exists && e.from >= 0 && e.to >= 0 ? channels - octet * 8 : 0;
      const T* element = from + octet * 8 * p.big_cells + e.from;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        values[j][c] = {T{0}};
        if (c < live) values[j][c] = {__ldg(element)};
        element += p.big_cells;
      }
      entry += producing_threads;
      settle();
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (places[j] < 0) continue;
      uint32_t* place = to + places[j];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if constexpr (split) {
          *place = __float_as_uint(values[j][c].of);  // consumers split it
          fails |= beyond_tf32(values[j][c].of);
        } else {
          *place = values[j][c].factor(storage);
        }
        place += p.channel_pitch;
      }
    }
  }
}

/// Brings a tile of small, 4 channels of an entry at a time. `quads`: entries are 4 positions.
template <bool split, bool quads, int at_once, class T>
__device__ __forceinline__ void bring_tile(const Plan& p, const Shared& s, const T* from, Storage storage,
                                           int channels, uint32_t* to, int thread, bool& fails) {
  const int entries = p.small_entries / (quads ? 4 : 1);
  int entry = thread, group = 0;
  const auto settle = [&] {
    while (entry >= entries) entry -= entries, ++group;
  };
  settle();
  while (group < p.columns / 4) {
    std::conditional_t<quads, LoadedQuad<T>, Loaded<T>> values[at_once][4];
    int places[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const bool some = group < p.columns / 4;
      const Entry e = some ? s.small_from[entry] : Entry{-1, -1};
      places[j] = some ? e.to + group * 16 : -1;
      const int live = e.from >= 0 ? channels - group * 4 : 0;
      const T* element = from + group * 4 * p.small_cells + e.from;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        values[j][c] = {};
        if (c < live) {
          if constexpr (quads)
            values[j][c] = LoadedQuad<T>::at(element);
          else
            values[j][c] = {__ldg(element)};
        }
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
        uint32_t* const place = to + places[j] + c * 4;
        uint32_t high[4], low[4];
        constexpr int positions = quads ? 4 : 1;
#pragma unroll
        for (int i = 0; i < positions; ++i) {
          Loaded<T> x;
          if constexpr (quads)
            x = values[j][c][i];
          else
            x = values[j][c];
          high[i] = split ? tf32_high_of_finite(__float_as_uint(x.value(storage))) : x.factor(storage);
          if constexpr (split) {
            low[i] = ptx::to_tf32_uncut(x.of - __uint_as_float(high[i]));
            fails |= beyond_tf32(x.of);
          }
        }
        if constexpr (quads) {
          *reinterpret_cast<uint4*>(place) = make_uint4(high[0], high[1], high[2], high[3]);
          if constexpr (split)
            *reinterpret_cast<uint4*>(place + p.tile_words()) = make_uint4(low[0], low[1], low[2], low[3]);
        } else {
          *place = high[0];
          if constexpr (split) place[p.tile_words()] = low[0];
        }
      }
    }
  }
}

/// Brings the tiles of all steps. Returns whether this thread met a value that cannot be split.
template <bool split, int at_once, class T>
__device__ __forceinline__ bool produce(const Plan& p, const Shared& s, const Slice& slice, const T* big,
                                        const T* small, Storage storage, bool quads, int64_t begin,
                                        int steps) {
  const int thread = threadIdx.x - consumers * group_threads;
  const PhasedAxis& depth = p.axis[0];
  const int64_t small_plane = int64_t{p.axis[1].small} * p.axis[2].small;
  const int64_t big_plane = int64_t{p.axis[1].big} * p.axis[2].big;
  const int buffer_words = p.parts * p.tile_words();
  bool fails = false;
  const int big_channels = p.big_per_group - slice.first_octet * 8;
  const int small_channels = p.small_per_group - slice.first_column;

  // The octet of rows whose address this thread computes: its tap, and its offset without that of the slot.
  int octet_phase = 0, octet_plane = 0, octet_place = 0;
  if (thread < p.products * 8) {
    const int octet = min(thread, p.octets_in_slice() - 1), channels = octet / p.slice_taps;
    const int tap = min(slice.first_tap + octet % p.slice_taps, p.taps - 1);
    const int taps[3]{tap / (p.axis[1].kernel * p.axis[2].kernel), tap / p.axis[2].kernel % p.axis[1].kernel,
                      tap % p.axis[2].kernel};
    int phase[3], shift[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const PhasedAxis& a = p.axis[i];
      const int t = taps[i] * a.dilation - a.padding;
      const int r = (t % a.stride + a.stride) % a.stride;
      phase[i] = 0;
      while (a.residue[phase[i]] != r) ++phase[i];
      shift[i] = (t - r) / a.stride - a.first[phase[i]];
    }
    octet_phase = phase[0], octet_plane = shift[0];
    octet_place = channels * 8 * p.channel_pitch +
                  (p.axis[1].offset[phase[1]] + shift[1]) * p.axis[2].extent + p.axis[2].offset[phase[2]] +
                  shift[2];
  }
  // The slot, along the depth, of a phase's plane number `plane` in this step.
  const auto slot = [&](int phase, int plane, int step) {
    return depth.offset[phase] + (step + plane) % (depth.span[phase] + 1);
  };

  int64_t i = begin / depth.small;  // column
  int d = static_cast<int>(begin % depth.small);
  Column column{};
  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    const bool fresh = step == 0 || d == 0;
    if (fresh) {
      column = column_of(p, i);
      ptx::named_barrier<producing_threads, 1>();  // all threads are done with the lists
      list_big(p, s, column, thread);
      list_small(p, s, column, quads, thread);
      ptx::named_barrier<producing_threads, 1>();
    }
    if (step >= 2) ptx::mbarrier_wait(s.empty[buffer], (step / 2 - 1) % 2);

    if (thread < p.products * 8)
      s.octets[buffer * p.products * 8 + thread] =
          slot(octet_phase, octet_plane, step) * p.slot_words + octet_place;
    if (thread == 0) {
      const int width = min(p.axis[2].tile, p.axis[2].small - column.w), pairs = (width + 15) / 16;
      s.extents[buffer] = {min(p.axis[1].tile, p.axis[1].small - column.h), pairs, width - (pairs - 1) * 16};
    }
    const T* const from_big =
        big + ((int64_t{column.image} * p.groups + slice.group) * p.big_per_group + slice.first_octet * 8) *
                  p.big_cells;
    const auto bring = [&](int phase, int plane) {
      const int z = (d + depth.first[phase] + plane) * depth.stride + depth.residue[phase];
      bring_plane<split, at_once>(p, s, from_big + z * big_plane, storage, within(z, depth.big), big_channels,
                                  s.big + slot(phase, plane, step) * p.slot_words, thread, fails);
    };
    for (int phase = 0; phase < depth.phases; ++phase) bring(phase, depth.span[phase] - 1);
    const T* const from_small =
        small +
        ((int64_t{column.image} * p.groups + slice.group) * p.small_per_group + slice.first_column) *
            p.small_cells +
        d * small_plane;
    uint32_t* const tile = s.small + buffer * buffer_words;
    if (quads)
      bring_tile<split, true, (at_once + 1) / 3>(p, s, from_small, storage, small_channels, tile, thread,
                                                 fails);
    else
      bring_tile<split, false, at_once>(p, s, from_small, storage, small_channels, tile, thread, fails);
    if (fresh && p.deep) {  // the previous step may still use the other planes' slots
      if (step >= 1) ptx::mbarrier_wait(s.empty[1 - buffer], (step - 1) / 2 % 2);
      for (int phase = 0; phase < depth.phases; ++phase)
        for (int plane = 0; plane + 1 < depth.span[phase]; ++plane) bring(phase, plane);
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(s.full[buffer]);
    if (++d == depth.small) d = 0, ++i;
  }
  return fails;
}

#endif

}  // namespace vox::cuda::conv::weight_grad

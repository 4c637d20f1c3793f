#pragma once

// One kernel packs the weights of every kernel on tensor cores: it rounds or splits them as the operand
// policy says (operands.cuh), and stores them in the order in which the kernel reads them, with zeros for
// channels that do not exist. That order is a Layout, the only thing that differs between the kernels:
//
//   struct Layout {
//     static constexpr int channels = 8;                // input channels of a granule
//     int64_t granules() const;                         // their number
//     int64_t columns() const;                          // scaled columns only; see pack_kernel
//     constexpr Granule at(auto number) const;          // 0 <= number < granules()
//     constexpr int channel(int c) const;               // channel c of a granule, from `in` on; else c
//     constexpr int64_t next_part() const;              // parts only: bytes from one to the next
//   };
//
// `number` is a uint32_t where it fits, because 64-bit divisions are slow, and else an int64_t; digits() of
// model/jobs.h takes both. Neighbouring threads have neighbouring numbers, and should store side by side.

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>

#include <cstdint>
#include <type_traits>

namespace vox::cuda::conv {

/// What lies side by side in packed weights: some input channels of one output channel and tap, usually 16
/// bytes.
struct Granule {
  int64_t group;
  int in, out;  ///< the first input channel and the output channel, of the group; may be beyond its last
  int64_t tap;  ///< its number in the kernel, or no_tap for zeros
  int64_t to;   ///< its place, in bytes

  static constexpr int64_t no_tap = -1;
};

/// The weight tensor: (small channels, big channels of a group, taps).
struct Weights {
  bool transposed;
  int64_t in_per_group, out_per_group, taps;
};
inline Weights weights_of(const Conv3dGeometry& g, bool transposed) {
  const int64_t small = g.small_per_group(), big = g.big_per_group();
  return {transposed, transposed ? small : big, transposed ? big : small, g.taps()};
}

/// The number of the row of taps from channel `in` of a group to channel `out`. conv_transpose3d reads small,
/// conv3d big. `p` holds the number of channels in a group.
template <class Problem, class Channel>
__device__ __forceinline__ int64_t weight_row(const Problem& p, bool transposed, int64_t group, Channel in,
                                              Channel out) {
  return transposed ? (group * p.in_per_group + in) * p.out_per_group + out
                    : (group * p.out_per_group + out) * p.in_per_group + in;
}

template <class Operand, class Layout>
int64_t packed_bytes(const Layout& layout) {
  return layout.granules() * Layout::channels * Operand::weight_parts *
         static_cast<int64_t>(sizeof(typename Operand::Element));
}

template <class Layout>
__device__ __forceinline__ Granule granule_at(int64_t number, const Layout& layout) {
  return number >> 31 ? layout.at(number) : layout.at(static_cast<uint32_t>(number));
}

template <class Storage, class Layout>
__device__ __forceinline__ void load_granule(float (&value)[Layout::channels], const Granule& granule,
                                             const Storage* weight, const Weights& w, const Layout& layout) {
  const bool exists = granule.out < w.out_per_group && granule.tap != Granule::no_tap;
  const int64_t channels = exists ? w.in_per_group - granule.in : 0;
  const int64_t row = weight_row(w, w.transposed, granule.group, int64_t{granule.in}, int64_t{granule.out});
  const Storage* const from = weight + row * w.taps + granule.tap;
  const int64_t step = (w.transposed ? w.out_per_group : 1) * w.taps;
#pragma unroll
  for (int c = 0; c < Layout::channels; ++c) {
    int channel = c;
    if constexpr (requires { layout.channel(c); }) channel = layout.channel(c);
    value[c] = channel < channels ? static_cast<float>(from[channel * step]) : 0.0f;
  }
}

template <class Operand, class Layout>
__device__ __forceinline__ void store_granule(const float (&value)[Layout::channels], unsigned char* to,
                                              const Layout& layout) {
  using Element = typename Operand::Element;
  using Words = std::conditional_t<sizeof(Element) * Layout::channels == 16, uint4, uint2>;
  static_assert(sizeof(Element) * Layout::channels == sizeof(Words));
#pragma unroll
  for (int part = 0; part < Operand::weight_parts; ++part) {
    alignas(16) Element bits[Layout::channels];
#pragma unroll
    for (int c = 0; c < Layout::channels; ++c) bits[c] = Operand::weight_part(value[c], part);
    *reinterpret_cast<Words*>(to) = *reinterpret_cast<const Words*>(bits);
    if constexpr (Operand::weight_parts > 1) to += layout.next_part();
  }
}

/// Packs the granules `first`, first + step, ... *failed becomes 1 if parts in TF32 cannot represent a weight
/// (null: results tell).
template <class Operand, class Storage, class Layout>
__device__ __forceinline__ void pack_granules(const Storage* weight, unsigned char* packed,
                                              const Weights& weights, const Layout& layout, int64_t granules,
                                              int64_t first, int64_t step, int64_t* failed) {
  for (int64_t i = first; i < granules; i += step) {
    const Granule granule = granule_at(i, layout);
    float value[Layout::channels];
    load_granule(value, granule, weight, weights, layout);
    store_granule<Operand>(value, packed + granule.to, layout);
    if constexpr (std::is_same_v<Operand, Tf32x3>) {
#pragma unroll
      for (int c = 0; c < Layout::channels; ++c)
        if (failed && beyond_tf32(value[c])) *failed = 1;
    }
  }
}

constexpr int packing_threads = 256;

/// Whether all weights of an output channel are scaled by one power of two: F16x3, F16Pair, F16OfF32.
template <class Operand>
constexpr bool scales_columns = requires {
  Operand::full_weight;
};

/// The same for such operands. A block packs the granules of one output channel, its `column`.
/// unscale[column] becomes 1 / the power of two. *failed becomes 1 if parts cannot represent some weights: if
/// all 8 of a granule are too small, but not all 0, or if there is an Inf or NaN; never if full_weight is 0.
template <class Operand, class Layout>
__device__ __forceinline__ void pack_column(const float* weight, unsigned char* packed,
                                            const Weights& weights, const Layout& layout, int64_t granules,
                                            int64_t column, int64_t columns, float* unscale,
                                            int64_t* failed) {
  constexpr bool can_fail = Operand::full_weight > 0;
  __shared__ float warp_most[packing_threads / 32];
  const auto for_each_granule = [&](auto f) {
    for (int64_t i = column + threadIdx.x * columns; i < granules; i += packing_threads * columns) {
      const Granule granule = granule_at(i, layout);
      float value[Layout::channels];
      load_granule(value, granule, weight, weights, layout);
      f(value, granule);
    }
  };
  float most = 0;
  for_each_granule([&](const auto& value, const Granule&) {
#pragma unroll
    for (const float x : value)
      if (can_fail || isfinite(x)) most = larger_size(most, x);
  });
  // Compared as integers, so that NaN is the largest.
  most = __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(most)));
  if (threadIdx.x % 32 == 0) warp_most[threadIdx.x / 32] = most;
  __syncthreads();
  for (const float of_warp : warp_most) most = larger_size(most, of_warp);

  const float scale = F16x3::scale_for(most);
  bool all_fit = most < __uint_as_float(0x7f800000);
  for_each_granule([&](auto& value, const Granule& granule) {
    float most_here = 0;
#pragma unroll
    for (float& x : value) {
      x *= scale;
      most_here = fmaxf(most_here, fabsf(x));
    }
    all_fit &= most_here >= Operand::full_weight || most_here == 0;
    store_granule<Operand>(value, packed + granule.to, layout);
  });
  if (threadIdx.x == 0) unscale[column] = F16x3::inverse(scale);
  if (can_fail && !all_fit) *failed = 1;
}

/// A layout for scaled columns says how many columns (output channels, with those that do not exist) there
/// are. They run fastest: granule i belongs to column i % columns().
template <class Operand, class Storage, class Layout>
__global__ void __launch_bounds__(packing_threads)
    pack_kernel(const Storage* __restrict__ weight, unsigned char* __restrict__ packed,
                const __grid_constant__ Weights weights, const __grid_constant__ Layout layout,
                int64_t granules, float* unscale, int64_t* failed, const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  if constexpr (scales_columns<Operand>)
    pack_column<Operand>(weight, packed, weights, layout, granules, blockIdx.x, gridDim.x, unscale, failed);
  else
    pack_granules<Operand>(weight, packed, weights, layout, granules,
                           int64_t{blockIdx.x} * packing_threads + threadIdx.x,
                           int64_t{gridDim.x} * packing_threads, failed);
}

/// Launches the kernel. `packed` has room for packed_bytes<Operand>(layout). See pack_granules and
/// pack_column for `failed` and `unscale`.
template <class Operand, class Storage, class Layout>
void pack_weights(const Launch& launch, const Storage* weight, void* packed, const Weights& weights,
                  const Layout& layout, int64_t* failed = nullptr, const int64_t* only_if = nullptr,
                  float* unscale = nullptr) {
  const int64_t granules = layout.granules();
  unsigned blocks = grid_for(granules, packing_threads);
  if constexpr (scales_columns<Operand>) blocks = static_cast<unsigned>(layout.columns());
  pack_kernel<Operand><<<blocks, packing_threads, 0, launch.stream()>>>(
      weight, static_cast<unsigned char*>(packed), weights, layout, granules, unscale, failed, only_if);
}

}  // namespace vox::cuda::conv

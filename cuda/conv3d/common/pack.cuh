#pragma once

// One kernel packs the weights of every kernel on tensor cores: it rounds or splits them as the operand
// policy says (operands.cuh), and stores them in the order in which the kernel reads them, with zeros for
// channels that do not exist. That order is a Layout, the only thing that differs between the kernels:
//
//   struct Layout {
//     static constexpr int channels = 8;                // input channels of a granule
//     int64_t granules() const;                         // their number
//     int64_t columns() const;                          // F16x3 only; see pack_kernel
//     constexpr Granule at(auto number) const;          // 0 <= number < granules()
//     constexpr int channel(int c) const { return c; }  // channel c of a granule, from `in` on
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

/// Parts of a weight, and their type.
template <class Operand>
struct PackedParts {
  static constexpr int count = 1;
  using Element = typename Operand::Element;
  static __device__ __forceinline__ Element part(float x, int) { return Operand::part(x); }
};
template <>
struct PackedParts<Tf32x3> {
  static constexpr int count = 2;
  using Element = uint32_t;
  static __device__ __forceinline__ Element part(float x, int i) {
    const uint32_t high = tf32_high(x);
    return i == 0 ? high : tf32_low(x, high);
  }
};
template <>
struct PackedParts<F16x3> {
  static constexpr int count = 3;
  using Element = float16;
  static __device__ __forceinline__ Element part(float x, int i) { return F16x3::weight_part(x, i); }
};

template <class Operand, class Layout>
int64_t packed_bytes(const Layout& layout) {
  using Parts = PackedParts<Operand>;
  return layout.granules() * Layout::channels * Parts::count *
         static_cast<int64_t>(sizeof(typename Parts::Element));
}

constexpr int packing_threads = 256;

/// Packs granules for one block of threads.
template <class Storage, class Operand, class Layout>
class Packer {
 public:
  static constexpr int channels = Layout::channels;
  using Parts = PackedParts<Operand>;
  using Element = typename Parts::Element;

  __device__ __forceinline__ Packer(const Storage* weight, unsigned char* packed, const Weights& weights,
                                    const Layout& layout)
      : weight_(weight), packed_(packed), weights_(weights), layout_(layout) {}

  __device__ __forceinline__ Granule at(int64_t number) const {
    return number >> 31 ? layout_.at(number) : layout_.at(static_cast<uint32_t>(number));
  }

  __device__ __forceinline__ void load(float (&value)[channels], const Granule& granule) const {
    const Storage* const from =
        weight_ +
        weight_row(weights_, weights_.transposed, granule.group, int64_t{granule.in}, int64_t{granule.out}) *
            weights_.taps +
        granule.tap;
    const int64_t step = (weights_.transposed ? weights_.out_per_group : 1) * weights_.taps;
    const int64_t here = granule.out < weights_.out_per_group && granule.tap != Granule::no_tap
                             ? weights_.in_per_group - granule.in
                             : 0;
#pragma unroll
    for (int c = 0; c < channels; ++c) {
      const int channel = layout_.channel(c);
      value[c] = channel < here ? static_cast<float>(from[channel * step]) : 0.0f;
    }
  }

  __device__ __forceinline__ void store(const float (&value)[channels], const Granule& granule) const {
    using Words = std::conditional_t<sizeof(Element) * channels == 16, uint4, uint2>;
    static_assert(sizeof(Element) * channels == sizeof(Words));
    unsigned char* to = packed_ + granule.to;
#pragma unroll
    for (int part = 0; part < Parts::count; ++part) {
      alignas(16) Element bits[channels];
#pragma unroll
      for (int c = 0; c < channels; ++c) bits[c] = Parts::part(value[c], part);
      *reinterpret_cast<Words*>(to) = *reinterpret_cast<const Words*>(bits);
      if constexpr (Parts::count > 1) to += layout_.next_part();
    }
  }

 private:
  const Storage* weight_;
  unsigned char* packed_;
  const Weights& weights_;
  const Layout& layout_;
};

/// Packs the granules `first`, first + step, ... *failed becomes 1 if parts in TF32 cannot represent a weight
/// (null: results tell).
template <class Operand, class Storage, class Layout>
__device__ __forceinline__ void pack_granules(const Storage* weight, unsigned char* packed,
                                              const Weights& weights, const Layout& layout, int64_t granules,
                                              int64_t first, int64_t step, int64_t* failed) {
  const Packer<Storage, Operand, Layout> packer(weight, packed, weights, layout);
  for (int64_t i = first; i < granules; i += step) {
    const Granule granule = packer.at(i);
    float value[Layout::channels];
    packer.load(value, granule);
    packer.store(value, granule);
    if constexpr (std::is_same_v<Operand, Tf32x3>) {
      bool all_fit = true;
#pragma unroll
      for (int c = 0; c < Layout::channels; ++c) all_fit &= !beyond_tf32(value[c]);
      if (failed && !all_fit) *failed = 1;
    }
  }
}

/// The same for F16x3, where all weights of an output channel are scaled by one power of two. A block packs
/// the granules of one output channel, its `column`. unscale[column] becomes 1 / the power of two. *failed
/// becomes 1 if parts cannot represent some weights: if all 8 of a granule are too small, but not all 0, or
/// if there is an Inf or NaN.
template <class Layout>
__device__ __forceinline__ void pack_column(const float* weight, unsigned char* packed,
                                            const Weights& weights, const Layout& layout, int64_t granules,
                                            int64_t column, int64_t columns, float* unscale,
                                            int64_t* failed) {
  __shared__ float warp_most[packing_threads / 32];
  const Packer<float, F16x3, Layout> packer(weight, packed, weights, layout);
  const int64_t first = column + threadIdx.x * columns, step = packing_threads * columns;
  float value[Layout::channels];
  float most = 0;
  for (int64_t i = first; i < granules; i += step) {
    packer.load(value, packer.at(i));
#pragma unroll
    for (int c = 0; c < Layout::channels; ++c) most = larger_size(most, value[c]);
  }
  // Compared as integers, so that NaN is the largest.
  most = __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(most)));
  if (threadIdx.x % 32 == 0) warp_most[threadIdx.x / 32] = most;
  __syncthreads();
  for (const float of_warp : warp_most) most = larger_size(most, of_warp);

  const float scale = F16x3::scale_for(most);
  bool all_fit = most < __uint_as_float(0x7f800000);
  for (int64_t i = first; i < granules; i += step) {
    const Granule granule = packer.at(i);
    packer.load(value, granule);
    float most_here = 0;
#pragma unroll
    for (int c = 0; c < Layout::channels; ++c) {
      value[c] *= scale;
      most_here = fmaxf(most_here, fabsf(value[c]));
    }
    all_fit &= most_here >= F16x3::full_weight || most_here == 0;
    packer.store(value, granule);
  }
  if (threadIdx.x == 0) unscale[column] = F16x3::inverse(scale);
  if (!all_fit) *failed = 1;
}

/// A layout for F16x3 says how many columns (output channels, with those that do not exist) there are. They
/// run fastest: granule i belongs to column i % columns().
template <class Operand, class Storage, class Layout>
__global__ void __launch_bounds__(packing_threads)
    pack_kernel(const Storage* __restrict__ weight, unsigned char* __restrict__ packed,
                const __grid_constant__ Weights weights, const __grid_constant__ Layout layout,
                int64_t granules, float* unscale, int64_t* failed, const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  if constexpr (std::is_same_v<Operand, F16x3>)
    pack_column(weight, packed, weights, layout, granules, blockIdx.x, gridDim.x, unscale, failed);
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
  if constexpr (std::is_same_v<Operand, F16x3>) blocks = static_cast<unsigned>(layout.columns());
  pack_kernel<Operand><<<blocks, packing_threads, 0, launch.stream()>>>(
      weight, static_cast<unsigned char*>(packed), weights, layout, granules, unscale, failed, only_if);
}

}  // namespace vox::cuda::conv

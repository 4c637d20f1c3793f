#pragma once

// What kernels that pack weights share.

#include <voxgrad/cuda/conv3d/common/operands.cuh>

#include <cstdint>

namespace vox::cuda::conv {

/// The weight is (small channels, big channels of a group, taps). This is the number of its row of taps from
/// channel `in` of a group to channel `out`. conv_transpose3d reads small, conv3d big. `p` holds the number
/// of channels in a group.
template <class Problem, class Channel>
__device__ __forceinline__ int64_t weight_row(const Problem& p, bool transposed, int64_t group, Channel in,
                                              Channel out) {
  return transposed ? (group * p.in_per_group + in) * p.out_per_group + out
                    : (group * p.out_per_group + out) * p.in_per_group + in;
}

// ---- Scaled pairs of f16 numbers (F16x3 of operands.cuh) --------------------------------------------------

constexpr int scaling_threads = 256;

/// A block packs the weights of one output channel, all scaled by one power of two. `for_each_granule(f)`
/// calls f(to, value) for this thread's share of the weights: `value` are 8 channels of a tap, `to` is where
/// their parts go, each `next_part` numbers after the one before. *unscale becomes 1 / the power of two.
/// *failed becomes 1 if parts cannot represent some weights: if all 8 of a granule are too small, but not all
/// 0, or if there is an Inf or NaN.
template <class ForEachGranule>
__device__ __forceinline__ void pack_scaled(const ForEachGranule& for_each_granule, int next_part,
                                            float* unscale, int64_t* failed) {
  __shared__ float warp_most[scaling_threads / 32];
  float most = 0;
  for_each_granule([&](float16*, const float(&value)[8]) {
#pragma unroll
    for (int c = 0; c < 8; ++c) most = larger_size(most, value[c]);
  });
  most = __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(most)));
  if (threadIdx.x % 32 == 0) warp_most[threadIdx.x / 32] = most;
  __syncthreads();
  for (const float of_warp : warp_most) most = larger_size(most, of_warp);

  const float scale = F16x3::scale_for(most);
  bool all_fit = most < __uint_as_float(0x7f800000);
  for_each_granule([&](float16* to, float(&value)[8]) {
    float most_here = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      value[c] *= scale;
      most_here = fmaxf(most_here, fabsf(value[c]));
    }
    all_fit &= most_here >= F16x3::full_weight || most_here == 0;
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      alignas(16) float16 bits[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) bits[c] = F16x3::weight_part(value[c], part);
      *reinterpret_cast<uint4*>(to + part * next_part) = *reinterpret_cast<const uint4*>(bits);
    }
  });
  if (threadIdx.x == 0) *unscale = F16x3::inverse(scale);
  if (!all_fit) *failed = 1;
}

}  // namespace vox::cuda::conv

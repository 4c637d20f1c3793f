#pragma once

// How kernel.cuh stores the sums of a warp: through shared memory, so that lanes write neighbouring outputs.

#include <voxgrad/cuda/conv3d/mma/tables.cuh>
#include <voxgrad/cuda/packet.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace vox::cuda::conv::mma {

/// Where sums go.
template <class Storage>
struct Output {
  const Storage* bias;
  Storage* output;
  int64_t* failed;  ///< of two parts only

  __device__ __forceinline__ float bias_of(int64_t channel) const {
    return bias ? static_cast<float>(bias[channel]) : 0.0f;
  }
  __device__ __forceinline__ void check(float value) const {
    if (failed && !(fabsf(value) < __uint_as_float(0x7f800000))) *failed = 1;
  }
};

/// Stores a packet if the condition holds. Without a branch, so that loads of several packets can be under
/// way.
template <class T, int n>
__device__ __forceinline__ void store_if(bool condition, T* to, const Packet<T, n>& packet) {
  constexpr int bytes = n * sizeof(T);
  using Pair = std::conditional_t<bytes == 16, uint4, uint2>;
  using One = std::conditional_t<bytes == 4, uint32_t, uint16_t>;
  std::conditional_t<bytes >= 8, Pair, One> words;
  static_assert(sizeof(words) == bytes);
  std::memcpy(&words, &packet, bytes);
  ptx::store_if_greater(condition, 0, to, words);
}

/// Two powers of two whose product is that of a and b, which f32 may not hold.
struct TwoScales {
  float first, second;

  static __device__ __forceinline__ TwoScales of(float a, float b) {
    const int exponent =
        static_cast<int>(__float_as_uint(a) >> 23) + static_cast<int>(__float_as_uint(b) >> 23);
    const int half = exponent / 2;  // both biased by 127
    return {__uint_as_float(static_cast<unsigned>(half) << 23),
            __uint_as_float(static_cast<unsigned>(exponent - half) << 23)};
  }
};

/// Stores a warp's sums. Eight channels at a time pass through shared memory, [channel][row], so that a lane
/// stores `count` neighbouring rows, and the next lane those after them. Banded, sums are multiplied by the
/// powers of two of their columns, `unscale`; of one part, also by that of their band.
template <int count, class Block, class Storage>
__device__ __forceinline__ void store_sums(const typename Block::Sums& sum, const Shared& shared,
                                           const Job& job, const Phases& phases, float of_band,
                                           const float* unscale, const Output<Storage>& output) {
  constexpr int rows = Block::m_tiles * 16, pitch = rows + 4, channel_lanes = rows / count,
                passes = std::max(channel_lanes / 32, 1),
                at_once = std::max(32 / channel_lanes, 1);  // channels
  const Plan& p = shared.p;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_row = lane % channel_lanes * count, first_channel = lane / channel_lanes;
  float* const staged = reinterpret_cast<float*>(shared.memory) + warp * 8 * pitch;
  const int64_t out_cells = int64_t{p.axis[0].out} * p.axis[1].out * p.axis[2].out;
  const int column = job.column_block * Block::shape.columns();
  const CellRange range = outputs_of(p, job, phases, column);
  int offset[passes];  // of the first row; -1: no output
#pragma unroll
  for (int i = 0; i < passes; ++i) {
    const CellEntry at = shared.rows[warp * rows + i * 32 * count + first_row].output;
    offset[i] = range.holds(at) ? at.offset : -1;
  }
  const int first_column = column + lane % 4 * 2;  // of the lane's sums
  float scale[Block::n_tiles][2], bias[Block::n_tiles][2];
#pragma unroll
  for (int i = 0; i < Block::n_tiles * 2; ++i) {
    const int channel = first_column + i / 2 * 8 + i % 2;
    scale[i / 2][i % 2] = Block::banded ? unscale[job.group * p.column_blocks * p.columns + channel] : 1.0f;
    bias[i / 2][i % 2] =
        channel < p.out_per_group ? output.bias_of(job.group * p.out_per_group + channel) : 0.0f;
  }
#pragma unroll
  for (int n = 0; n < Block::n_tiles; ++n) {
    const int channels = p.out_per_group - column - n * 8;  // that exist
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int channel = lane % 4 * 2 + odd;
      const TwoScales of_columns = Block::banded && Block::parts == 1 ? TwoScales::of(of_band, scale[n][odd])
                                                                      : TwoScales{1, scale[n][odd]};
#pragma unroll
      for (int t = 0; t < Block::m_tiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          staged[channel * pitch + t * 16 + half * 8 + lane / 4] =
              fmaf(sum[t][n][half * 2 + odd] * of_columns.first, of_columns.second, bias[n][odd]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      Packet<float, count> values[8 / at_once];
      const float* from = staged + first_channel * pitch + i * 32 * count + first_row;
#pragma unroll
      for (auto& of_channel : values) {
        of_channel = *reinterpret_cast<const Packet<float, count>*>(from);
        from += at_once * pitch;
      }
      Storage* to = output.output + range.first + offset[i] + (n * 8 + first_channel) * out_cells;
#pragma unroll
      for (int c = 0; c < 8 / at_once; ++c, to += at_once * out_cells) {
        const bool exists = offset[i] >= 0 && c * at_once + first_channel < channels;
        Packet<Storage, count> rounded;
#pragma unroll
        for (int e = 0; e < count; ++e) {
          const float value = values[c].lane[e];
          if (Block::parts == 2 && exists) output.check(value);
          rounded.lane[e] = Storage(value);
        }
        store_if(exists, to, rounded);
      }
    }
    __syncwarp();
  }
}

}  // namespace vox::cuda::conv::mma

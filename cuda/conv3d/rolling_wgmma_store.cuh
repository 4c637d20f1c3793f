#pragma once

// A depth of rolling_wgmma on its way out. The tensor cores leave 8 positions of 4 channels to an instruction
// of a warp; through shared memory it stores 32 positions in a row. The code is short rather than quick: it
// runs once for a plane, and what it fetches of itself counts.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_products.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_work.cuh>

namespace vox::cuda::rolling {

/// Puts the bias of a march behind the warp's results.
template <class Tile>
__device__ __forceinline__ void keep_bias(float* results, const typename Tile::Storage* bias, const March& m,
                                          int lane, const FlatProduct& p) {
  const int first = m.channel_block * Tile::channels;
  __syncwarp();
  for (int c = lane; c < Tile::channels; c += 32)
    results[8 * Tile::results_pitch + c] =
        bias && first + c < p.out_per_group ? static_cast<float>(bias[m.group * p.out_per_group + first + c])
                                            : 0.0f;
}

/// Stores the sums of a slot, a depth of the march, by way of the warp's `results`.
template <class Tile>
__device__ __forceinline__ void store(const float (&sum)[Tile::tiles][Tile::columns / 2], int slot,
                                      float* results, typename Tile::Storage* output, const March& m,
                                      int depth, int warp, int lane, const FlatProduct& p) {
  using Storage = typename Tile::Storage;
  constexpr int tiles = Tile::tiles, pitch = Tile::results_pitch, positions = Tile::warp_positions;
  // So many instructions store whole channels, `step` of them.
  constexpr int places = tiles == 4 ? 2 : tiles == 3 ? 3 : 1, step = places * 32 / positions;

  Storage* to[places];
  const float* from[places];
  int left[places];  // channels, for the lane
#pragma unroll
  for (int i = 0; i < places; ++i) {
    const int position = (i * 32 + lane) % positions, channel = (i * 32 + lane) / positions;
    const flat::Place at = flat::place_of(m.tile * Tile::positions + warp * positions + position, p);
    const int first = m.channel_block * Tile::channels + channel;
    to[i] = output + ((int64_t{at.image} * p.groups + m.group) * p.out_per_group + first) * p.out_channel +
            (int64_t{depth} * p.out_h + at.h) * p.out_w + at.w;
    from[i] = results + channel * pitch + position;
    left[i] = at.image < p.batch && at.h < p.h.cells && at.w < p.w.cells ? p.out_per_group - first : 0;
  }

  float* const mine = results + lane % 4 * 2 * pitch + lane / 4;
#pragma unroll
  for (int n = 0; n < Tile::channels / 8; ++n) {
    __syncwarp();
    flat::for_each_of(std::make_integer_sequence<int, Tile::taps_d>{}, [&](auto s) {
      if (s != slot) return;
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
            mine[e * pitch + (row * tiles + t) * 8] = sum[t][s * (Tile::channels / 2) + n * 4 + row * 2 + e];
        }
      }
    });
    __syncwarp();
#pragma unroll
    for (int c = 0; c < 8; c += step) {
#pragma unroll
      for (int i = 0; i < places; ++i) {
        const float bias = results[8 * pitch + n * 8 + c + (i * 32 + lane) / positions];
        if (n * 8 + c < left[i]) *to[i] = Storage(from[i][c * pitch] + bias);
        to[i] += step * p.out_channel;
      }
    }
  }
}

}  // namespace vox::cuda::rolling

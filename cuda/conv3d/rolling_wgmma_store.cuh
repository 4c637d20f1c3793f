#pragma once

// A depth of rolling_wgmma on its way out. The tensor cores leave 8 positions of 4 channels to an instruction
// of a warp; through shared memory it stores 32 positions in a row.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_products.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_work.cuh>

namespace vox::cuda::rolling {

/// Where a warp's positions of one depth go.
template <class Tile>
class Results {
 public:
  using Storage = typename Tile::Storage;

  __device__ __forceinline__ Results(Storage* output, const Storage* bias, const March& m, int depth,
                                     int warp, int lane, const FlatProduct& p)
      : channels_left_(p.out_per_group - m.channel_block * Tile::channels),
        bias_(bias ? bias + m.group * p.out_per_group + m.channel_block * Tile::channels : nullptr) {
#pragma unroll
    for (int i = 0; i < places; ++i) {
      const int position = (i * 32 + lane) % Tile::warp_positions;
      channel_[i] = (i * 32 + lane) / Tile::warp_positions;
      const flat::Place place =
          flat::place_of(m.tile * Tile::positions + warp * Tile::warp_positions + position, p);
      to_[i] = nullptr;
      if (place.image < p.batch && place.h < p.h.cells && place.w < p.w.cells)
        to_[i] = output +
                 ((int64_t{place.image} * p.groups + m.group) * p.out_per_group +
                  m.channel_block * Tile::channels + channel_[i]) *
                     p.out_channel +
                 (int64_t{depth} * p.out_h + place.h) * p.out_w + place.w;
    }
  }

  /// The sums of a slot, by way of the warp's `results` in shared memory.
  template <int slot>
  __device__ __forceinline__ void store(const float (&sum)[Tile::tiles][Tile::columns / 2], float* results,
                                        int lane, const FlatProduct& p) const {
    constexpr int tiles = Tile::tiles, pitch = Tile::results_pitch;
    float* const mine = results + lane % 4 * 2 * pitch + lane / 4;
#pragma unroll
    for (int n = 0; n < Tile::channels / 8; ++n) {
      __syncwarp();
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
            mine[e * pitch + (row * tiles + t) * 8] =
                sum[t][slot * (Tile::channels / 2) + n * 4 + row * 2 + e];
        }
      }
      __syncwarp();
#pragma unroll
      for (int c = 0; c < 8; c += step) {
#pragma unroll
        for (int i = 0; i < places; ++i) {
          const int channel = n * 8 + c + channel_[i];
          if (to_[i] == nullptr || channel >= channels_left_) continue;
          const float first = bias_ ? static_cast<float>(bias_[channel]) : 0.0f;
          to_[i][(n * 8 + c) * p.out_channel] =
              Storage(results[(c + channel_[i]) * pitch + (i * 32 + lane) % Tile::warp_positions] + first);
        }
      }
    }
  }

 private:
  // So many instructions store whole channels, `step` of them.
  static constexpr int places = Tile::tiles % 4 == 0 ? 2 : Tile::tiles == 3 ? 3 : 1;
  static constexpr int step = places * 32 / Tile::warp_positions;

  Storage* to_[places];
  int channel_[places];
  int channels_left_;
  const Storage* bias_;
};

}  // namespace vox::cuda::rolling

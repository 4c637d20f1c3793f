#pragma once

// The consumers of strided_wgmma_f16x3.cuh: products of the stages by two warpgroups.

#include <voxgrad/cuda/conv3d/strided_wgmma_f16x3_shared.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_rows.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::strided {

template <class Block>
struct ScaledProducts {
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int sums = Block::sums;

  /// The products of one stage, of which all have been seen off when it returns. `unscale` is that of its
  /// input.
  static __device__ __forceinline__ void multiply(float (&total)[tiles][slots * sums],
                                                  const unsigned char* stage, const unsigned char* weights,
                                                  int first_position, float unscale, int k,
                                                  const MostInSum& most_in_sum, const StridedPlan& p) {
    const StridedKind& kind = p.kind[k];
    const uint64_t a0 = ptx::shared_matrix(stage + first_position * 16, 0, 128);
    const uint64_t b0 = ptx::shared_matrix(weights, 0, 128);
    const uint64_t a_high = a0 >> 32 << 32, b_high = b0 >> 32 << 32;
    const uint32_t a_low = static_cast<uint32_t>(a0), b_low = static_cast<uint32_t>(b0);
    float sum[tiles][sums];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const int last = kind.first[slot + 1];
      const int most = most_in_sum.of[k][slot];
#pragma unroll 1
      for (int first = kind.first[slot]; first < last; first += most) {
        const int end = min(first + most, last);
        ptx::wgmma_fence();
        StridedItem item = p.item[first];
#pragma unroll 1
        for (int i = first; i < end;) {
          const bool accumulate = i > first;
          const uint32_t a = a_low + item.position, b = b_low + item.weights;
          item = p.item[++i];  // before it is needed: a load takes as long as the instructions
#pragma unroll
          for (int t = 0; t < tiles; ++t)
            ptx::wgmma<ptx::Operand::f16, channels>(sum[t], a_high | (a + t * 64), b_high | b, accumulate);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
          for (int s = 0; s < sums; ++s)
            total[t][slot * sums + s] = fmaf(sum[t][s], unscale, total[t][slot * sums + s]);
      }
    }
  }

  static __device__ __forceinline__ void consume(const Columns& columns, const ScaledShared& shared,
                                                 int warpgroup, const float* __restrict__ bias,
                                                 const float* __restrict__ column_unscale,
                                                 float* __restrict__ output, const MostInSum& most_in_sum,
                                                 const StridedPlan& p) {
    const int positions = 128 * tiles / p.depths;
    for (int c = threadIdx.x; c < channels + 8; c += consumer_threads) {
      const int in_group = columns.channel_block * channels + c;
      shared.bias[c] = bias && c < channels && in_group < p.out_per_group
                           ? bias[columns.group * p.out_per_group + in_group]
                           : 0.0f;
      if (c < channels)
        shared.column_unscale[c] =
            column_unscale[(columns.group * p.channel_blocks + columns.channel_block) * channels + c];
    }
    ptx::named_barrier<consumer_threads>(5);
    flat::Ring ring{p.stages};
    if (p.weight_bytes) ptx::mbarrier_wait(*shared.weights_here, 0);
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
      const Tile tile = tile_of(number, positions, p);
      for (int row_block = 0; row_block < p.row_blocks; ++row_block) {
        float total[tiles][slots * sums] = {};
        for (int k = p.first_kind[row_block]; k < p.first_kind[row_block + 1]; ++k) {
          const StridedKind& kind = p.kind[k];
          if (kind.stage_weights == 0) continue;
          const int first_position = p.depths == 2 ? warpgroup * kind.plane : warpgroup * tiles * 64;
          for (int slab = 0; slab < p.slabs; ++slab) {
            const unsigned char* const stage = shared.stages + ring.slot * p.stage_bytes;
            const unsigned char* const weights =
                p.weight_bytes ? shared.weights + kind.weights + slab * kind.stage_weights
                               : stage + kind.granule_pitch * 32;
            ptx::mbarrier_wait(shared.full[ring.slot], ring.parity);
            // For the producers' stores: they would have to wait for all of their loads.
            ptx::fence_proxy_async();
            multiply(total, stage, weights, first_position, shared.unscale[ring.slot], k, most_in_sum, p);
            ptx::mbarrier_arrive(shared.empty[ring.slot]);
            ring.advance();
          }
        }
        const int pair = threadIdx.x % 4 * 2;
#pragma unroll
        for (int j = 0; j < sums / 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float first = shared.bias[pair + j * 8 + e],
                        unscale = shared.column_unscale[pair + j * 8 + e];
#pragma unroll
            for (int t = 0; t < tiles; ++t)
#pragma unroll
              for (int slot = 0; slot < slots; ++slot)
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                  float& y = total[t][slot * sums + j * 4 + row * 2 + e];
                  y = fmaf(y, unscale, first);
                }
          }
        Results<Block>::write(total, shared, tile, columns, row_block, warpgroup, output, p);
      }
    }
  }
};

}  // namespace vox::cuda::strided

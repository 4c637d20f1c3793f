#pragma once

// The consumers of strided_wgmma.cuh: products of the stages by two warpgroups, in whose registers sums are.

#include <voxgrad/cuda/conv3d/strided_wgmma_rows.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::strided {

template <class Block>
struct Products {
  using Storage = typename Block::Storage;
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int instructions = Block::instructions, sums = Block::sums;
  static constexpr bool wide = Block::wide;
  using Sums = float[instructions][slots * sums];

  /// The products of one stage of `k_steps`, of which all have been seen off when it returns.
  template <int k_steps>
  static __device__ __forceinline__ void multiply(Sums& sum, const unsigned char* stage,
                                                  const unsigned char* weights, int first_position,
                                                  const StridedKind& kind, const StridedPlan& p) {
    const int granule = kind.granule_pitch * 16;
    const uint64_t cells0 = ptx::shared_matrix(stage + first_position * 16, granule, 128);
    const uint64_t weights0 = ptx::shared_matrix(weights, Block::weight_rows * 16, 128);
    // The lower halves hold the addresses, in units of 16 bytes.
    const uint64_t cells_high = cells0 >> 32 << 32, weights_high = weights0 >> 32 << 32;
    const uint32_t cells_low = static_cast<uint32_t>(cells0), weights_low = static_cast<uint32_t>(weights0);
    ptx::wgmma_fence();
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const int last = kind.first[slot + 1];
#pragma unroll 2
      for (int i = kind.first[slot]; i < last; ++i) {
        const uint32_t cells = cells_low + p.item[i].position, of_item = weights_low + p.item[i].weights;
#pragma unroll
        for (int step = 0; step < k_steps; ++step)
#pragma unroll
          for (int t = 0; t < instructions; ++t) {
            const uint64_t a = cells_high | (cells + step * (granule / 8) + t * 64),
                           b = weights_high | (of_item + step * Block::weight_rows * 2);
            ptx::wgmma<Block::Operand::operand, Block::columns>(sum[t] + slot * sums, wide ? b : a,
                                                                wide ? a : b);
          }
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
  }

  /// Sums begin as the bias of their channels.
  static __device__ __forceinline__ void begin(Sums& sum, const float* bias) {
    if constexpr (wide) {
      const float first = bias[wide_channel(threadIdx.x % 128 / 16, threadIdx.x % 32 / 4)];
#pragma unroll
      for (int i = 0; i < slots * sums; ++i) sum[0][i] = ptx::opaque(first);
    } else {
      const float* const pair_bias = bias + threadIdx.x % 4 * 2;
#pragma unroll
      for (int j = 0; j < sums / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float first = pair_bias[j * 8 + e];
#pragma unroll
          for (int t = 0; t < tiles; ++t)
#pragma unroll
            for (int slot = 0; slot < slots; ++slot)
              sum[t][slot * sums + j * 4 + e] = sum[t][slot * sums + j * 4 + 2 + e] = first;
        }
    }
  }

  static __device__ __forceinline__ void consume(const Columns& columns, const Shared& shared, int warpgroup,
                                                 const Operands<Block>& from, Storage* __restrict__ output,
                                                 const StridedPlan& p) {
    const int positions = 128 * tiles / p.depths;
    for (int c = threadIdx.x; c < channels + 8; c += consumer_threads) {
      const int in_group = columns.channel_block * channels + c;
      shared.bias[c] = from.bias && c < channels && in_group < p.out_per_group
                           ? static_cast<float>(from.bias[columns.group * p.out_per_group + in_group])
                           : 0.0f;
    }
    ptx::named_barrier<consumer_threads>(5);
    flat::Ring ring{p.stages};
    Results<Block> results;
    if (p.weight_bytes) ptx::mbarrier_wait(*shared.weights_here, 0);
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
      const Tile tile = tile_of(number, positions, p);
      for (int row_block = 0; row_block < p.row_blocks; ++row_block) {
        Sums sum;
        begin(sum, shared.bias);
        for (int k = p.first_kind[row_block]; k < p.first_kind[row_block + 1]; ++k) {
          const StridedKind& kind = p.kind[k];
          if (kind.stage_weights == 0) continue;
          const int first_position = p.depths == 2 ? warpgroup * kind.plane : warpgroup * tiles * 64;
          for (int slab = 0; slab < p.slabs; ++slab) {
            const unsigned char* const stage =
                shared.stages + ring.slot * p.stage_bytes + (Block::trims ? kind.begin : 0);
            const unsigned char* const weights =
                p.weight_bytes ? shared.weights + kind.weights + slab * kind.stage_weights
                               : stage + p.k_steps * kind.granule_pitch * 32;
            ptx::mbarrier_wait(shared.full[ring.slot], ring.parity);
            // For the producers' stores: they would have to wait for all of their loads.
            ptx::fence_proxy_async();
            if (p.k_steps == 4)
              multiply<4>(sum, stage, weights, first_position, kind, p);
            else if (p.k_steps == 2)
              multiply<2>(sum, stage, weights, first_position, kind, p);
            else
              multiply<1>(sum, stage, weights, first_position, kind, p);
            ptx::mbarrier_arrive(shared.empty[ring.slot]);
            ring.advance();
          }
        }
        if constexpr (wide)
          results.write(sum[0], shared, tile, columns, row_block, warpgroup, from, output, p);
        else
          results.write(sum, shared, tile, columns, row_block, warpgroup, output, p);
      }
    }
    if constexpr (Block::form == StridedForm::runs) ptx::bulk_store_wait_all();
  }
};

}  // namespace vox::cuda::strided

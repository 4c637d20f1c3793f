#pragma once

// conv3d and conv_transpose3d of many channels: a matrix product whose operands come as they are multiplied.
//
// With channels last, a tap of a box of cells is a box of the input, and 128 bytes of its channels are a row
// of an operand. TMA loads it, with zeros for what lies outside the input, at any offset and
// stride. Weights are packed as images of the stages they go to. So no thread touches an operand: one thread
// issues the TMA loads, and two warpgroups multiply.
//
// What a block owns: a box of cells x some columns (output channels; in conv_transpose3d also the neighbours
// along w that are joined), in registers. It sums over taps and chunks of 128 bytes of channels, a stage
// each. Where tiles are few, the blocks of a cluster share the stages of one tile, and each adds up a part of
// all their sums through the cluster's shared memory: no partial result goes to memory, no atomics, and the
// bits never change.
//
// Sums stay in the tensor core's accumulators (Note [Truncating sums] in common/operands.cuh).
//
// Reading order: plan.h, common/channels_last.cuh, and this file.

#include <voxgrad/cuda/conv3d/dense/plan.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/cluster.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/tensor_copy.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>
#include <voxgrad/cuda/runtime/dependent.cuh>

#include <cstdint>

namespace vox::cuda::conv::dense {

constexpr int consuming_threads = warpgroups * 128, block_threads = consuming_threads + 32;

template <class StorageType, class OperandType, int products_of_warpgroup, int columns_of_block>
struct Block {
  using Storage = StorageType;
  using Operand = OperandType;
  static constexpr int products = products_of_warpgroup, columns = columns_of_block;
  static constexpr TileShape shape{products, columns};
  static constexpr int row_elements = row_bytes / sizeof(typename Operand::Element);
  static constexpr int cell_bytes = shape.rows() * row_bytes, weight_bytes = columns * row_bytes;
};

// ---- The producer -----------------------------------------------------------------------------------------

/// One thread issues the TMA loads of every step. A stage holds rows of cells, then rows of columns.
template <class Block>
__device__ __forceinline__ void produce(const CUtensorMap& cells, const unsigned char* weights,
                                        unsigned char* stages, Barriers& barriers, const Plan& p,
                                        const Job& j, const Steps& steps) {
  if (steps.begin == steps.end) return;  // no taps
  const Taps d = taps_of(p.d, j.phase_d), h = taps_of(p.h, j.phase_h), w = taps_of(p.w, j.phase_w);
  const int w0 = j.w * p.w.in_step, h0 = j.h * p.h.in_step, d0 = j.d * p.d.in_step;
  const int n0 = j.n * p.groups + j.group;
  const uint32_t bytes = p.box_rows * row_bytes + Block::weight_bytes;
  // Images of weights: [group and tile of columns][tap along d][h][w][chunk].
  const int64_t images = int64_t{j.group * p.column_tiles + j.column_tile} * p.d.taps();
  auto [tap_d, tap_h, tap_w, chunk] = digits(steps.begin, {h.count, w.count, p.chunks});
  Ring ring{p.stages};
  for (int i = steps.begin; i < steps.end; ++i) {
    unsigned char* const stage = stages + ring.slot * p.stage_bytes;
    ptx::Mbarrier& full = barriers.full[ring.slot];
    const int at_d = d.first + tap_d, at_h = h.first + tap_h, at_w = w.first + tap_w;
    const int64_t image = (((images + at_d) * p.h.taps() + at_h) * p.w.taps() + at_w) * p.chunks + chunk;
    ring.wait_empty(barriers);
    ptx::mbarrier_arrive_expecting(full, bytes);
    ptx::tensor_copy(stage, cells,
                     {chunk * Block::row_elements, w0 + p.w.offset[at_w], h0 + p.h.offset[at_h],
                      d0 + p.d.offset[at_d], n0},
                     full);
    ptx::bulk_copy(stage + Block::cell_bytes, weights + image * Block::weight_bytes, Block::weight_bytes,
                   full);
    ring.advance();
    if (++chunk < p.chunks) continue;
    chunk = 0;
    if (++tap_w < w.count) continue;
    tap_w = 0;
    if (++tap_h == h.count) tap_h = 0, ++tap_d;
  }
}

// ---- The consumers ----------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A warpgroup's products of 64 cells, over all steps.
template <class Block>
__device__ __forceinline__ void multiply(float (&sum)[Block::products][Block::columns / 2], int warpgroup,
                                         const unsigned char* stages, Barriers& barriers, const Plan& p,
                                         int steps) {
  constexpr int product_bytes = 64 * row_bytes, step_bytes = 32;  // of one instruction: m, and k
  Ring ring{p.stages};
  Released released{barriers};
  for (int i = 0; i < steps; ++i) {
    const unsigned char* const stage = stages + ring.slot * p.stage_bytes;
    const uint64_t cells = ptx::swizzled_matrix(stage + warpgroup * Block::products * product_bytes),
                   weights = ptx::swizzled_matrix(stage + Block::cell_bytes);
    ring.wait_full(barriers);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < row_bytes; k += step_bytes)
#pragma unroll
      for (int m = 0; m < Block::products; ++m)
        ptx::wgmma<Block::Operand::operand, Block::columns>(sum[m], ptx::moved(cells, m * product_bytes + k),
                                                            ptx::moved(weights, k));
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    released.now();
    released.later(ring.slot);
    ring.advance();
  }
  ptx::wgmma_wait<0>();
}

/// Writes a warpgroup's sums to [channel][cell][joined] in shared memory. The pitch of a channel is such that
/// the lanes of a warp write to different banks.
template <class Block>
__device__ __forceinline__ void stage_sums(const float (&sum)[Block::products][Block::columns / 2],
                                           int warpgroup, float* staged, const Plan& p) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int first_row = warpgroup * Block::products * 64 + warp * 16 + lane / 4;
#pragma unroll
  for (int m = 0; m < Block::products; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + m * 64 + half * 8;
#pragma unroll
      for (int i = 0; i < Block::columns / 8; ++i) {
        const int column = i * 8 + lane % 4 * 2;
        const float x = sum[m][i * 4 + half * 2], y = sum[m][i * 4 + half * 2 + 1];
        if (p.joined == 0) {
          staged[column * p.staged_pitch + row] = x;
          staged[(column + 1) * p.staged_pitch + row] = y;
        } else {
          const int neighbour = column & ((1 << p.joined) - 1);
          float* const to = staged + (column >> p.joined) * p.staged_pitch + (row << p.joined) + neighbour;
          *reinterpret_cast<float2*>(to) = make_float2(x, y);
        }
      }
    }
}

/// The index of an output in its channel, or -1. `position` counts cells of the box and the neighbours that
/// are joined.
struct OutputAt {
  int index, sample;
};
__device__ __forceinline__ OutputAt output_at(const Plan& p, const Job& j, int position) {
  const int neighbour = position & ((1 << p.joined) - 1);
  const auto [n, in_d, in_h, in_w] = digits(position >> p.joined, {p.d.box, p.h.box, p.w.box});
  const int w = (j.w + in_w) * p.w.out_step + p.w.first_out[j.phase_w] + neighbour,
            h = (j.h + in_h) * p.h.out_step + p.h.first_out[j.phase_h],
            d = (j.d + in_d) * p.d.out_step + p.d.first_out[j.phase_d];
  const bool exists = w >= 0 && w < p.w.out && h < p.h.out && d < p.d.out && n < p.box_n && j.n + n < p.batch;
  return {exists ? (d * p.h.out + h) * p.w.out + w : -1, j.n + n};
}

/// Four numbers to a multiple of four.
__device__ __forceinline__ void store_quad(float* to, const float (&x)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}
template <class Storage>
__device__ __forceinline__ void store_quad(Storage* to, const float (&x)[4]) {
  alignas(8) const Storage all[4]{Storage(x[0]), Storage(x[1]), Storage(x[2]), Storage(x[3])};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(all);
}

/// Adds up what the blocks of the cluster have staged, in their order, and stores it. The blocks and the
/// warps share the channels; a lane has four outputs of each: `quads` of neighbours, or 32 apart.
template <class Block, bool quads>
__device__ __forceinline__ void store(const float* staged, const typename Block::Storage* bias,
                                      typename Block::Storage* output, const Plan& p, const Job& j) {
  constexpr int warps = consuming_threads / 32, apart = quads ? 1 : 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int positions = Block::shape.rows() << p.joined, channels = Block::columns >> p.joined;
  const int first_channel = j.group * p.out_per_group + j.column_tile * channels,
            here = min(channels, p.out_per_group - j.column_tile * channels);
  for (int from = 0; from < positions; from += 128) {
    const int first = from + (quads ? lane * 4 : lane);
    int at[4];  // in the output, of the block's first channel
#pragma unroll
    for (int i = 0; i < (quads ? 1 : 4); ++i) {
      const OutputAt out = output_at(p, j, first + i * apart);
      at[i] = out.index < 0
                  ? -1
                  : (out.sample * p.groups * p.out_per_group + first_channel) * p.out_cells + out.index;
    }
    const auto store_channel = [&](int c, float(&x)[4]) {
      if (bias) {
        const auto b = static_cast<float>(bias[first_channel + c]);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] += b;
      }
      if constexpr (quads) {
        if (at[0] >= 0) store_quad(output + at[0] + c * p.out_cells, x);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (at[i] >= 0) output[at[i] + c * p.out_cells] = static_cast<typename Block::Storage>(x[i]);
      }
    };
    const float* const sums = staged + first;
    if (p.split == 1) {
#pragma unroll 4
      for (int c = warp; c < here; c += warps) {
        float x[4];
        if constexpr (quads) {
          const float4 all = *reinterpret_cast<const float4*>(sums + c * p.staged_pitch);
          x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) x[i] = sums[c * p.staged_pitch + i * apart];
        }
        store_channel(c, x);
      }
    } else {
      for (int c = warp * p.split + j.rank; c < here; c += warps * p.split) {
        const uint32_t here_at = ptx::shared_address_of(sums + c * p.staged_pitch);
        float part[most_split][4];  // loaded at once
#pragma unroll
        for (int rank = 0; rank < most_split; ++rank)
          if (rank < p.split) {
            const uint32_t there = ptx::address_in_cluster(here_at, rank);
            if constexpr (quads) {
              ptx::load_of_cluster(part[rank], there);
            } else {
#pragma unroll
              for (int i = 0; i < 4; ++i) ptx::load_of_cluster(part[rank][i], there + 4 * apart * i);
            }
          }
        float x[4] = {};
#pragma unroll
        for (int rank = 0; rank < most_split; ++rank)
          if (rank < p.split)
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] += part[rank][i];
        store_channel(c, x);
      }
    }
  }
}

#endif

// ---- The kernel -------------------------------------------------------------------------------------------

template <class Block>
__global__ void __launch_bounds__(block_threads, Block::shape.most_resident())
    product_kernel(const __grid_constant__ CUtensorMap cells, const unsigned char* __restrict__ weights,
                   const typename Block::Storage* __restrict__ bias, typename Block::Storage* output,
                   const __grid_constant__ Plan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  Barriers& barriers = *reinterpret_cast<Barriers*>(memory);
  unsigned char* const stages = memory + barrier_bytes;
  if (threadIdx.x == 0) {
    ptx::prefetch(cells);
    barriers.init(p.stages, 1, consuming_threads);
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  ptx::wait_for_previous_kernel();

  const Job job = job_of(p, blockIdx.x);
  const Steps steps = steps_of(p, job);
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == warpgroups) {  // one warp
    if (threadIdx.x == consuming_threads) {
      produce<Block>(cells, weights, stages, barriers, p, job, steps);
    }
    if (p.split > 1) {
      ptx::cluster_barrier();
      ptx::cluster_barrier();
    }
  } else {
    float sum[Block::products][Block::columns / 2] = {};
    multiply<Block>(sum, warpgroup, stages, barriers, p, steps.end - steps.begin);
    ptx::named_barrier<consuming_threads, 1>();  // the stages are free
    float* const staged = reinterpret_cast<float*>(stages);
    stage_sums<Block>(sum, warpgroup, staged, p);
    if (p.split > 1)
      ptx::cluster_barrier();
    else
      ptx::named_barrier<consuming_threads, 1>();
    if (p.quads)
      store<Block, true>(staged, bias, output, p, job);
    else
      store<Block, false>(staged, bias, output, p, job);
    if (p.split > 1) ptx::cluster_barrier();  // a block lives until nobody reads its sums
  }
#endif
}

}  // namespace vox::cuda::conv::dense

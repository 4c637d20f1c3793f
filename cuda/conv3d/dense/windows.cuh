#pragma once

// conv3d and conv_transpose3d with stride 1 and many cells: kernel.cuh with less to read from the L2 cache.
//
// The taps of a (kh, kw) plane read boxes of cells that overlap. Here one TMA load covers the window that
// holds them all: a box and a halo. Groups of 8 cells along w, at any row of a swizzled box, are a matrix to
// wgmma, so each tap multiplies its cells where they lie in the window.
//
// What a block owns, tile after tile: 64 output channels x two slices (along d) of 16 x 16 cells, one slice
// for each multiplying warpgroup. Output channels are the rows of the product and cells its columns: an
// instruction of 128 columns reads 6 KB of shared memory in 64 cycles, which leaves room for the copies. One
// thread issues the TMA loads, of the next tile too while sums are stored.
//
// Sums stay in the tensor core's accumulators (Note [Truncating sums] in common/operands.cuh).

#include <voxgrad/cuda/conv3d/dense/kernel.cuh>

#include <cstdint>

namespace vox::cuda::conv::dense {

constexpr int cells_of_product = slice_edge * slice_edge / 2;  // of an instruction: 8 along w, all along h

/// Where the window of a tap along an axis begins, for the cell 0.
__device__ __forceinline__ int first_offset(const Axis& axis) {
  return min(axis.offset[0], axis.offset[axis.first_tap[1] - 1]);
}

/// What is in shared memory: barriers, the ring of windows, and the ring of weights.
struct WindowRings {
  Barriers &of_windows, &of_weights;
  unsigned char *windows, *weights;

  __device__ WindowRings(unsigned char* memory, const Plan& p)
      : of_windows(reinterpret_cast<Barriers*>(memory)[0]),
        of_weights(reinterpret_cast<Barriers*>(memory)[1]),
        windows(memory + barrier_bytes),
        weights(windows + window_slots * p.window_bytes) {}
};

/// One thread issues the TMA loads of all tiles: a window for each chunk of channels and tap along d, and the
/// weights of each tap in it.
template <class Block>
__device__ __forceinline__ void produce_windows(const CUtensorMap& cells, const unsigned char* packed,
                                                const WindowRings& rings, const Plan& p) {
  const int first_w = first_offset(p.w), first_h = first_offset(p.h);
  const int plane_taps = p.h.taps() * p.w.taps();
  const uint32_t bytes = slices * p.window_w * p.window_h * row_bytes;
  Ring windows{window_slots}, weights{p.stages};
  for (int block = blockIdx.x; block < p.blocks; block += gridDim.x) {
    const Job j = job_of(p, block);
    // Images of weights: [group and tile of columns][tap along d][h][w][chunk].
    const int64_t images = int64_t{j.group * p.column_tiles + j.column_tile} * p.d.taps();
    for (int chunk = 0; chunk < p.chunks; ++chunk)
      for (int tap_d = 0; tap_d < p.d.taps(); ++tap_d) {
        windows.wait_empty(rings.of_windows);
        ptx::Mbarrier& window_full = rings.of_windows.full[windows.slot];
        ptx::mbarrier_arrive_expecting(window_full, bytes);
        ptx::tensor_copy(rings.windows + windows.slot * p.window_bytes, cells,
                         {chunk * Block::row_elements, j.w + first_w, j.h + first_h, j.d + p.d.offset[tap_d],
                          j.n * p.groups + j.group},
                         window_full);
        windows.advance();
        const unsigned char* from =
            packed + ((images + tap_d) * plane_taps * p.chunks + chunk) * Block::weight_bytes;
        for (int tap = 0; tap < plane_taps; ++tap, from += p.chunks * Block::weight_bytes) {
          weights.wait_empty(rings.of_weights);
          ptx::Mbarrier& full = rings.of_weights.full[weights.slot];
          ptx::mbarrier_arrive_expecting(full, Block::weight_bytes);
          ptx::bulk_copy(rings.weights + weights.slot * p.stage_bytes, from, Block::weight_bytes, full);
          weights.advance();
        }
      }
  }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Stores a warpgroup's sums of a slice: the products of the left and of the right 8 cells of each row. A
/// pair of lanes has 4 neighbours on the left and 4 on the right; each lane of it stores 4 of them.
template <class Block>
__device__ __forceinline__ void store_slice(const float (&sum)[2][cells_of_product / 2],
                                            const typename Block::Storage* bias,
                                            typename Block::Storage* output, const Plan& p, const Job& j,
                                            int d) {
  using Storage = typename Block::Storage;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool odd = lane % 2;
  const int w = j.w + lane % 2 * 8 + lane % 4 / 2 * 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int channel = j.column_tile * Block::columns + warp * 16 + lane / 4 + half * 8;
    const bool exists = channel < p.out_per_group && d < p.d.out;
    const int of_all = j.group * p.out_per_group + channel;
    const float b = exists && bias ? static_cast<float>(bias[of_all]) : 0;
    Storage* to = output + int64_t{j.n * p.groups * p.out_per_group + of_all} * p.out_cells +
                  (d * p.h.out + j.h) * p.w.out + w;
#pragma unroll
    for (int row = 0; row < slice_edge; ++row, to += p.w.out) {
      float x[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float left = sum[0][row * 4 + half * 2 + i] + b, right = sum[1][row * 4 + half * 2 + i] + b;
        const float other = __shfl_xor_sync(~0u, odd ? left : right, 1);
        x[i] = odd ? other : left;
        x[2 + i] = odd ? right : other;
      }
      if (!exists || j.h + row >= p.h.out) continue;
      if (p.quads) {
        if (w < p.w.out) store_quad(to, x);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (w + i < p.w.out) to[i] = static_cast<Storage>(x[i]);
      }
    }
  }
}

/// The products of a tap: both halves of a slice, over the first `bytes` of a row of channels.
template <class Block, int bytes>
__device__ __forceinline__ void multiply_tap(float (&sum)[2][cells_of_product / 2], uint64_t weights,
                                             uint64_t cells, bool adds) {
  constexpr int step_bytes = 32;  // of an instruction, along k
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < bytes; k += step_bytes)
#pragma unroll
    for (int side = 0; side < 2; ++side)
      ptx::wgmma<Block::Operand::operand, cells_of_product>(
          sum[side], ptx::moved(weights, k), ptx::moved(cells, side * 8 * row_bytes + k), adds || k > 0);
  ptx::wgmma_commit();
}

/// A warpgroup multiplies its slice of every window, and stores its sums after each tile.
template <class Block>
__device__ __forceinline__ void multiply_windows(const WindowRings& rings,
                                                 const typename Block::Storage* bias,
                                                 typename Block::Storage* output, const Plan& p,
                                                 int warpgroup) {
  const int first_w = first_offset(p.w), first_h = first_offset(p.h);
  const int slice = warpgroup * p.window_w * p.window_h * row_bytes;
  const int planes = p.chunks * p.d.taps();
  const bool half_rows = 2 * p.in_per_group <= Block::row_elements;  // the rest of a row is zeros
  float sum[2][cells_of_product / 2];
  Ring windows{window_slots}, weights{p.stages};
  Released window{rings.of_windows}, stage{rings.of_weights};
  for (int block = blockIdx.x; block < p.blocks; block += gridDim.x) {
    for (int plane = 0; plane < planes; ++plane) {
      const uint64_t cells =
          ptx::swizzled_matrix(rings.windows + windows.slot * p.window_bytes + slice, p.window_w * row_bytes);
      windows.wait_full(rings.of_windows);
      for (int tap_h = 0; tap_h < p.h.taps(); ++tap_h)
        for (int tap_w = 0; tap_w < p.w.taps(); ++tap_w) {
          const int begins = (p.h.offset[tap_h] - first_h) * p.window_w + p.w.offset[tap_w] - first_w;
          const uint64_t rows = ptx::swizzled_matrix(rings.weights + weights.slot * p.stage_bytes),
                         columns = ptx::moved(cells, begins * row_bytes);
          const bool adds = plane + tap_h + tap_w > 0;
          weights.wait_full(rings.of_weights);
          if (half_rows)
            multiply_tap<Block, row_bytes / 2>(sum, rows, columns, adds);
          else
            multiply_tap<Block, row_bytes>(sum, rows, columns, adds);
          ptx::wgmma_wait<1>();
          stage.now();
          window.now();
          stage.later(weights.slot);
          weights.advance();
        }
      window.later(windows.slot);
      windows.advance();
    }
    ptx::wgmma_wait<0>();
    stage.now();
    window.now();
    const Job j = job_of(p, block);
    store_slice<Block>(sum, bias, output, p, j, j.d + warpgroup);
  }
}

#endif

template <class Block>
__global__ void __launch_bounds__(block_threads, 1)
    windows_kernel(const __grid_constant__ CUtensorMap cells, const unsigned char* __restrict__ weights,
                   const typename Block::Storage* __restrict__ bias, typename Block::Storage* output,
                   const __grid_constant__ Plan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  const WindowRings rings(memory, p);
  if (threadIdx.x == 0) {
    ptx::prefetch(cells);
    rings.of_windows.init(window_slots, 1, consuming_threads);
    rings.of_weights.init(p.stages, 1, consuming_threads);
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  ptx::wait_for_previous_kernel();

  const int warpgroup = threadIdx.x / 128;
  if (warpgroup < warpgroups)
    multiply_windows<Block>(rings, bias, output, p, warpgroup);
  else if (threadIdx.x == consuming_threads)
    produce_windows<Block>(cells, weights, rings, p);
#endif
}

}  // namespace vox::cuda::conv::dense

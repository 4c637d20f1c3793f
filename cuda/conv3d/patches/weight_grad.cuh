#pragma once

// conv3d_weight_grad of patches, on the tensor cores of any GPU since sm_80 (mma.sync):
//
//   dweight[cs, (cb, k)] = sum over n, i of small[n, cs, i] * big[n, cb, i * kernel + k]
//
// Rows of the product are rows of big (plan.h) with their taps along w, columns are channels of small, and
// the cells are summed over. Cells follow each other in both tensors, so a lane loads 8 cells of a row of
// small, and has the numbers of two instructions: which cell is which k does not matter, as long as it is the
// same in both operands. Of big with kernel.w = 2 it loads twice as much, and sorts the two taps into the
// operands of two instructions.
//
// What a block owns: 8 x `n_tiles` channels of small, all or some rows of big, and a split of the cells. What
// a warp owns: `row_groups` x 8 of the rows of big, and 32 cells of the split in turn. At the end the warps
// with the same rows add their sums in a tree through shared memory. Each block writes its own partial
// result; sum_kernel adds them in order. No atomics, and the bits depend on the sizes only.
//
// Values that are not finite: cells and rows that do not exist are zeros in both operands, or their sums are
// dropped. f32: as in kernel.cuh.

#include <voxgrad/cuda/conv3d/common/splits.cuh>
#include <voxgrad/cuda/conv3d/patches/kernel.cuh>

namespace vox::cuda::conv::patches {

constexpr int wg_threads = 32 * block_warps;

template <class N, int kernel_w, int n_tiles, class T = typename N::Storage>
__global__ void __launch_bounds__(wg_threads, split_blocks(n_tiles, N::parts))
    split_kernel(const T* __restrict__ big, const T* __restrict__ small, float* __restrict__ partials,
                 const __grid_constant__ WeightGradPlan p) {
  constexpr int parts = N::parts, groups = row_groups(parts), depth = depth_of(n_tiles, parts);
  constexpr int m_tiles = groups / 2 * kernel_w, sums = m_tiles * n_tiles * 4;
  constexpr int words = chunk * int{sizeof(T)} / 4;  // of a chunk
  extern __shared__ __align__(16) float added[];     // [warp][sum][lane]
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int g = lane / 4, t = lane % 4;
  const int of_rows = warp % p.row_warps, team = warp / p.row_warps, teams = block_warps / p.row_warps;
  const int small_block = static_cast<int>(blockIdx.x) % p.small_blocks,
            job = static_cast<int>(blockIdx.x) / p.small_blocks;
  const int big_block = job % p.big_blocks, split = job / p.big_blocks;
  const int first_small = small_block * n_tiles * 8;
  const int first_big = (big_block * p.row_warps + of_rows) * groups * 8;

  int64_t big_row[groups];  // -1: none
#pragma unroll
  for (int j = 0; j < groups; ++j) {
    const int row = first_big + 8 * j + g;
    big_row[j] = row < p.grids.big_rows ? p.grids.big_row(row) : -1;
  }

  float sum[m_tiles][n_tiles][4] = {};
  const int length = ceil_div(p.steps, p.splits);
  const int begin = split * length, end = min(p.steps, begin + length);
#pragma unroll 1
  for (int step = begin + team; step < end; step += depth * teams) {
    uint32_t of_big[depth][groups][kernel_w * words], of_small[depth][n_tiles][words];
#pragma unroll
    for (int s = 0; s < depth; ++s) {
      const int at = step + s * teams;
      const Place place = place_of(p.grids, 4 * at + t);
      const bool exists = place.exists && at < end;
#pragma unroll
      for (int j = 0; j < groups; ++j)
        load(of_big[s][j], big + place.big + big_row[j], exists && big_row[j] >= 0);
#pragma unroll
      for (int n = 0; n < n_tiles; ++n) {
        const int row = first_small + 8 * n + g;
        load(of_small[s][n], small + place.small + row * p.grids.small_cells,
             exists && row < p.grids.small_rows);
      }
    }
#pragma unroll
    for (int s = 0; s < depth; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // 4 of the 8 cells
        uint32_t b[n_tiles][2][parts];
#pragma unroll
        for (int n = 0; n < n_tiles; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int cell = 4 * half + 2 * i;
            pair_of(b[n][i], of_small[s][n], cell, of_small[s][n], cell + 1);
          }
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) {  // tap m % kernel_w of cells (0, 1) and (2, 3)
          uint32_t a[parts][4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const auto& row = of_big[s][m / kernel_w * 2 + i % 2];
            const int cell = 4 * half + i / 2 * 2, tap = m % kernel_w;
            uint32_t pair[parts];
            pair_of(pair, row, cell * kernel_w + tap, row, (cell + 1) * kernel_w + tap);
#pragma unroll
            for (int part = 0; part < parts; ++part) a[part][i] = pair[part];
          }
#pragma unroll
          for (int n = 0; n < n_tiles; ++n) multiply<N>(sum[m][n], a, b[n]);
        }
      }
  }

  for (int half = teams / 2; half > 0; half /= 2) {  // teams [half, 2 half) give theirs to teams [0, half)
    float* const mine = added + (team % half * p.row_warps + of_rows) * sums * 32 + lane;
    __syncthreads();
    if (team >= half && team < 2 * half) {
#pragma unroll
      for (int i = 0; i < sums; ++i) mine[i * 32] = sum[i / 4 / n_tiles][i / 4 % n_tiles][i % 4];
    }
    __syncthreads();
    if (team < half) {
#pragma unroll
      for (int i = 0; i < sums; ++i) sum[i / 4 / n_tiles][i / 4 % n_tiles][i % 4] += mine[i * 32];
    }
  }
  if (team > 0) return;
#pragma unroll
  for (int n = 0; n < n_tiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int j = 0; j < groups; ++j) {
        float* const to = partials + split * p.split_floats + (first_small + 8 * n + 2 * t + e) * p.pitch +
                          (first_big + 8 * j + g) * kernel_w;
        const int m = j / 2 * kernel_w, i = j % 2 * 2 + e;
        if constexpr (kernel_w == 1)
          *to = sum[m][n][i];
        else
          *reinterpret_cast<float2*>(to) = make_float2(sum[m][n][i], sum[m + 1][n][i]);
      }
}

/// Stores sums. A split has padding at the end of every row, and rows of padding.
template <class T>
struct StoreSum {
  WeightGradPlan p;
  T* dweight;
  int64_t* failed;

  __device__ __forceinline__ void operator()(int64_t i, double sum) const {
    const int64_t row_length = int64_t{p.grids.big_rows} * p.grids.kernel_w;
    const Division by_row = divide(i, p.pitch);
    if (by_row.quotient >= p.grids.small_rows || by_row.remainder >= row_length) return;
    dweight[by_row.quotient * row_length + by_row.remainder] = static_cast<T>(sum);
    if (std::is_same_v<T, float> && !isfinite(static_cast<float>(sum))) *failed = 1;
  }
};

}  // namespace vox::cuda::conv::patches

#include "docs/exercises/ladder/kernel.h"

namespace exercise {

constexpr int tile = 128, slice = 64, threads = 256;
constexpr int blocks_x = cells / tile, blocks_y = rows / tile;
constexpr int stride = tile + 8;  // 272 bytes: rows begin in different banks of shared memory

__global__ void conv_transpose3d(const half* input, const half* weight, float* output) {
  using namespace nvcuda::wmma;
  alignas(32) __shared__ half w[slice][stride], x[slice][stride];
  alignas(32) __shared__ float results[threads / 32][16][16];
  const int first_row = blockIdx.y * tile, first_cell = blockIdx.x * tile;
  input += blockIdx.z * in_channels * cells + first_cell;
  output += blockIdx.z * rows * cells;
  // Of the tile, a warp computes 32 rows and 64 cells: 2 x 4 fragments.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, cell = warp % 2 * 64;

  fragment<accumulator, 16, 16, 16, float> sums[2][4];
  for (auto& of_row : sums)
    for (auto& sum : of_row) fill_fragment(sum, 0.f);
  for (int channel = 0; channel < in_channels; channel += slice) {
    for (int i = threadIdx.x; i < slice * tile / 8; i += threads) {  // 16 bytes, 8 numbers, at once
      const int c = i / (tile / 8), j = i % (tile / 8) * 8;
      *reinterpret_cast<uint4*>(&w[c][j]) =
          *reinterpret_cast<const uint4*>(&weight[(channel + c) * rows + first_row + j]);
      *reinterpret_cast<uint4*>(&x[c][j]) =
          *reinterpret_cast<const uint4*>(&input[(channel + c) * cells + j]);
    }
    __syncthreads();
    for (int c = 0; c < slice; c += 16) {
      fragment<matrix_a, 16, 16, 16, half, col_major> a[2];  // w[c][row] is element (row, c)
      fragment<matrix_b, 16, 16, 16, half, row_major> b[4];
      for (int r = 0; r < 2; ++r) load_matrix_sync(a[r], &w[c][row + 16 * r], stride);
      for (int i = 0; i < 4; ++i) load_matrix_sync(b[i], &x[c][cell + 16 * i], stride);
      for (int r = 0; r < 2; ++r)
        for (int i = 0; i < 4; ++i) mma_sync(sums[r][i], a[r], b[i], sums[r][i]);
    }
    __syncthreads();
  }

  // Which lane holds which element of a fragment is not specified, so it goes through shared memory. The two
  // taps along w and 16 cells make 32 neighbouring outputs, one for each lane.
#pragma unroll  // or the sums would be an array in memory, not in registers
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_matrix_sync(&results[warp][0][0], sums[r][i], 16, mem_row_major);
      __syncwarp();
      for (int pair = 0; pair < 16; pair += 2)
        output[output_index(first_row + row + 16 * r + pair + lane % 2,
                            first_cell + cell + 16 * i + lane / 2)] =
            results[warp][pair + lane % 2][lane / 2];
      __syncwarp();  // before the next fragment takes its place
    }
}

}  // namespace exercise

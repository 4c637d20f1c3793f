#include "docs/exercises/ladder/kernel.h"

namespace exercise {

constexpr int tile = 128, slice = 32, threads = 256;
constexpr int blocks_x = cells / tile, blocks_y = rows / tile;

// A block computes `tile` rows and `tile` cells of a volume, a thread 8 x 8 of them: the taps of one output
// channel, at every 16th cell.
__global__ void conv_transpose3d(const float* input, const float* weight, float* output) {
  __shared__ float w[slice][tile], x[slice][tile];
  const int first_row = blockIdx.y * tile, first_cell = blockIdx.x * tile;
  const int row = threadIdx.x / 16 * 8, cell = threadIdx.x % 16;  // in the tile
  input += blockIdx.z * in_channels * cells + first_cell;
  output += blockIdx.z * rows * cells;

  float sums[8][8] = {};
  for (int channel = 0; channel < in_channels; channel += slice) {
    for (int i = threadIdx.x; i < slice * tile; i += threads) {  // neighbouring threads, neighbouring numbers
      w[i / tile][i % tile] = weight[(channel + i / tile) * rows + first_row + i % tile];
      x[i / tile][i % tile] = input[(channel + i / tile) * cells + i % tile];
    }
    __syncthreads();  // both slices are complete
    for (int c = 0; c < slice; ++c) {
      float wr[8], xc[8];  // 16 loads for 64 multiply-adds
      for (int i = 0; i < 8; ++i) wr[i] = w[c][row + i], xc[i] = x[c][cell + 16 * i];
      for (int r = 0; r < 8; ++r)
        for (int i = 0; i < 8; ++i) sums[r][i] += wr[r] * xc[i];
    }
    __syncthreads();  // no thread reads the slices any more
  }
  for (int r = 0; r < 8; ++r)
    for (int i = 0; i < 8; ++i)
      output[output_index(first_row + row + r, first_cell + cell + 16 * i)] = sums[r][i];
}

}  // namespace exercise

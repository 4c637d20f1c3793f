#include "docs/exercises/ladder/kernel.h"

namespace exercise {

constexpr int tile = 128, slice = 32, threads = 256;
constexpr int blocks_x = cells / tile, blocks_y = rows / tile;

// A block computes `tile` rows from blockIdx.y * tile on and `tile` cells from blockIdx.x * tile on of volume
// blockIdx.z, a thread 8 x 8 of them: the taps of one output channel, at every 16th cell.
__global__ void conv_transpose3d(const float* input, const float* weight, float* output) {
  __shared__ float w[slice][tile], x[slice][tile];
  const int row = threadIdx.x / 16 * 8, cell = threadIdx.x % 16;  // in the tile

  float sums[8][8] = {};
  // To do: for each slice of channels, the threads load weight and input into w and x, and add to their sums.
  // Then each writes its sums where output_index says.
}

}  // namespace exercise

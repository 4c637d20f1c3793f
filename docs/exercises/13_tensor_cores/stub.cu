#include "docs/exercises/ladder/kernel.h"

namespace exercise {

constexpr int tile = 128, slice = 64, threads = 256;
constexpr int blocks_x = cells / tile, blocks_y = rows / tile;
constexpr int stride = tile + 8;  // 272 bytes: rows begin in different banks of shared memory

__global__ void conv_transpose3d(const half* input, const half* weight, float* output) {
  using namespace nvcuda::wmma;
  alignas(32) __shared__ half w[slice][stride], x[slice][stride];
  alignas(32) __shared__ float results[threads / 32][16][16];
  // Of the tile, a warp computes 32 rows and 64 cells: 2 x 4 fragments.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, cell = warp % 2 * 64;

  fragment<accumulator, 16, 16, 16, float> sums[2][4];
  // To do: load slices as in exercise 12, multiply them by mma_sync, and write the output.
}

}  // namespace exercise

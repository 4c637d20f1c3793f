#pragma once

#include <cstdint>

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/runtime/launch.h>

// The last step of weight gradients whose sum was cut into splits of cells, each with a partial result.

namespace vox::cuda::conv {

constexpr int split_threads = 256;  // of a block

/// Calls store(i, sum) for this block's numbers i < size, the sum over all splits of partials[split * size +
/// i]. `parts` warps share the splits of 32 numbers, so that many loads are in flight even for few numbers.
/// The order depends on the arguments only.
template <int parts, class Store>
__global__ void __launch_bounds__(split_threads)
    sum_splits_kernel(const float* __restrict__ partials, int64_t size, int64_t splits,
                      const __grid_constant__ Store store) {
  static_assert(parts == 1 || parts == 8);
  constexpr int each = split_threads / parts;  // numbers of a block
  __shared__ double of_part[parts][32];
  const int part = parts == 1 ? 0 : static_cast<int>(threadIdx.x / 32);
  const int64_t i = int64_t{blockIdx.x} * each + threadIdx.x % each;
  double sum = 0;  // in f32 the rounding of some 100 additions would exceed all other errors
  if (i < size) {
#pragma unroll 8
    for (int64_t split = part; split < splits; split += parts) sum += partials[split * size + i];
  }
  if constexpr (parts > 1) {
    of_part[part][threadIdx.x % 32] = sum;
    __syncthreads();
    if (part > 0) return;
    for (int other = 1; other < parts; ++other) sum += of_part[other][threadIdx.x];
  }
  if (i < size) store(i, sum);
}

/// Launches it for all numbers. Measured: 28,672 take 8.4 us in parts and 13.0 without; 65,536 take 13.4 and
/// 9.5. One grid holds all: 2^31 blocks of 32 numbers are more than memory holds.
template <class Store>
void sum_splits(const Launch& launch, const float* partials, int64_t size, int64_t splits,
                const Store& store) {
  const auto start = [&]<int parts>() {
    const auto blocks = static_cast<unsigned>(ceil_div(size, split_threads / parts));
    sum_splits_kernel<parts><<<blocks, split_threads, 0, launch.stream()>>>(partials, size, splits, store);
  };
  size <= 40'000 ? start.template operator()<8>() : start.template operator()<1>();
}

}  // namespace vox::cuda::conv

// What the tensor cores of a GPU do with mma.sync: a loop of bare instructions, in TFLOP/s. The share of it
// that kernels of cuda/conv3d/mma reach is in their NOTES.md.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include <voxgrad/cuda/ptx/mma.cuh>

namespace {

using vox::cuda::ptx::Operand;

constexpr int warps = 4, sums = 8, rounds = 2000;

/// Eight independent sums for each warp.
template <Operand operand>
__global__ void __launch_bounds__(32 * warps) loop_kernel(float* result) {
  float sum[sums][4] = {};
  const uint32_t a[4]{threadIdx.x, 1, 2, 3}, b[2]{threadIdx.x, 5};
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (auto& of_one : sum) {
      if constexpr (operand == Operand::tf32)
        vox::cuda::ptx::mma_m16n8k8_tf32(of_one, a, b);
      else
        vox::cuda::ptx::mma_m16n8k16<operand>(of_one, a, b[0], b[1]);
    }
  }
  float all = 0;
  for (const auto& of_one : sum)
    for (const float x : of_one) all += x;
  if (all == 0.5f) *result = all;  // never: but the compiler does not know
}

/// The best of ten runs, in TFLOP/s.
template <Operand operand>
double rate(int multiprocessors) {
  constexpr int k = operand == Operand::tf32 ? 8 : 16;
  const int blocks = 4 * multiprocessors;
  float* result = nullptr;
  cudaEvent_t begin{}, end{};
  cudaMalloc(&result, sizeof(float)), cudaEventCreate(&begin), cudaEventCreate(&end);
  float best = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 10; ++i) {
    cudaEventRecord(begin);
    loop_kernel<operand><<<blocks, 32 * warps>>>(result);
    cudaEventRecord(end), cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    best = std::min(best, ms);
  }
  cudaEventDestroy(begin), cudaEventDestroy(end), cudaFree(result);
  return 2.0 * 16 * 8 * k * sums * rounds * warps * blocks / best / 1e9;
}

}  // namespace

int main() {
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
    std::fprintf(stderr, "bench_conv3d_mma_rate: no CUDA device\n");
    return 1;
  }
  std::printf("%s, %d multiprocessors: TFLOP/s of mma.sync: bf16 %.0f, f16 %.0f, tf32 %.0f\n", device.name,
              device.multiProcessorCount, rate<Operand::bf16>(device.multiProcessorCount),
              rate<Operand::f16>(device.multiProcessorCount),
              rate<Operand::tf32>(device.multiProcessorCount));
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

#include <unistd.h>

#include <cstdio>
#include <limits>
#include <type_traits>

#include EXERCISE_KERNEL  // the reader's file or ours

#include "docs/exercises/steps.h"

// Runs the kernel on a GPU and measures it.

namespace exercise {

namespace {

void check(cudaError_t status) { expect(status == cudaSuccess, "CUDA: ", cudaGetErrorString(status)); }

const bool has_gpu = [] {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
  std::puts("This program needs an NVIDIA GPU.");
  std::fflush(stdout);
  _exit(77);  // CTest calls this skipped
}();

/// The numbers as T, in memory of the GPU. It is freed when the program ends.
template <class T>
T* on_gpu(const Floats& numbers) {
  const std::vector<T> converted(numbers.begin(), numbers.end());
  T* data = nullptr;
  check(cudaMalloc(&data, numbers.size() * sizeof(T)));
  check(cudaMemcpy(data, converted.data(), numbers.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

/// The definition. A thread computes one output: two loads for each multiply-add.
template <class T>
__global__ void one_output_per_thread(const T* input, const T* weight, float* output) {
  const int cell = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y;
  input += blockIdx.z * in_channels * cells + cell;
  float sum = 0;
  for (int c = 0; c < in_channels; ++c) sum += float(weight[c * rows + row]) * float(input[c * cells]);
  output[blockIdx.z * rows * cells + output_index(row, cell)] = sum;
}

constexpr int peak_steps = 512, chains = 8;

/// Multiply-adds in registers: by the ordinary units for float, by tensor cores (mma.sync) for half. The
/// chains differ, or the compiler would compute one for all.
template <class T>
__global__ void peak(float factor, float term, float* output) {
  float kept = 0;
  if constexpr (std::is_same_v<T, float>) {
    float x[chains];
    for (int i = 0; i < chains; ++i) x[i] = i * term;
    for (int step = 0; step < peak_steps; ++step)
      for (float& chain : x) chain = fmaf(chain, factor, term);
    for (const float chain : x) kept += chain;
  } else {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, col_major> a;
    fragment<matrix_b, 16, 16, 16, half, row_major> b;
    fragment<accumulator, 16, 16, 16, float> x[chains];
    fill_fragment(a, half(factor));
    fill_fragment(b, half(term));
    for (int i = 0; i < chains; ++i) fill_fragment(x[i], i * term);
    for (int step = 0; step < peak_steps; ++step)
      for (auto& chain : x) mma_sync(chain, a, b, chain);
    for (const auto& chain : x)
      for (int i = 0; i < chain.num_elements; ++i) kept += chain.x[i];
  }
  output[blockIdx.x * blockDim.x + threadIdx.x] = kept;
}

/// The time of one of 50 launches that follow each other.
double gpu_seconds(const std::function<void()>& launch) {
  return seconds([&] {
           for (int i = 0; i < 50; ++i) launch();
           check(cudaGetLastError());
           check(cudaDeviceSynchronize());
         }) /
         50;
}

template <class T>
using Kernel = void (*)(const T* input, const T* weight, float* output);

template <class T>
Floats run(Kernel<T> kernel, const Floats& input, const Floats& weight) {
  const size_t volumes = input.size() / (in_channels * cells);
  Floats result(volumes * rows * cells, std::numeric_limits<float>::quiet_NaN());
  float* const output = on_gpu<float>(result);
  kernel<<<dim3(blocks_x, blocks_y, volumes), threads>>>(on_gpu<T>(input), on_gpu<T>(weight), output);
  check(cudaGetLastError());
  check(cudaMemcpy(result.data(), output, result.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return result;
}

template <class T>
void print_bars(Kernel<T> kernel) {
  constexpr size_t volumes = 16, copied = 1 << 26, blocks = 1 << 14;  // more than the caches of a GPU hold
  const T* const input = on_gpu<T>(whole_numbers(volumes * in_channels * cells, 1));
  const T* const weight = on_gpu<T>(whole_numbers(in_channels * rows, 2));
  float* const output = on_gpu<float>(Floats(volumes * rows * cells));
  float *const from = on_gpu<float>(Floats(copied)), *const to = on_gpu<float>(Floats(copied));

  const double operations = std::is_same_v<T, float> ? 2 : 2 * 16 * 16 * 16 / 32;  // of a thread in a step
  const double arithmetic = gpu_seconds([&] { peak<T><<<blocks, 256>>>(0.5f, 1.f, output); });
  const double copy =
      gpu_seconds([&] { check(cudaMemcpyAsync(to, from, 4 * copied, cudaMemcpyDeviceToDevice)); });
  const double floor = print_roofline(
      {operations * chains * peak_steps * 256 * blocks / arithmetic, 8 * copied / copy}, volumes, sizeof(T));
  print_bar("by definition", floor, gpu_seconds([&] {
              one_output_per_thread<<<dim3(cells / 256, rows, volumes), 256>>>(input, weight, output);
            }));
  print_bar("your kernel", floor, gpu_seconds([&] {
              kernel<<<dim3(blocks_x, blocks_y, volumes), threads>>>(input, weight, output);
            }));
}

}  // namespace

Floats run_kernel(const Floats& input, const Floats& weight) { return run(conv_transpose3d, input, weight); }
void print_kernel_bars() { print_bars(conv_transpose3d); }

}  // namespace exercise

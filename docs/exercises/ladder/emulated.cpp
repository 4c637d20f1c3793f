#include <barrier>
#include <cstdio>
#include <deque>
#include <limits>
#include <thread>

#include EXERCISE_KERNEL  // the reader's file or ours

// Runs the kernel without a GPU. The threads of a block are threads of the CPU; blocks run one after another.

namespace exercise {

namespace {

std::barrier block(threads);
std::deque<std::barrier<>> warps;

template <class T>
Floats run(void (*kernel)(const T*, const T*, float*), const Floats& input, const Floats& weight) {
  static_assert(threads % 32 == 0 && threads <= 1024, "a block has whole warps, 32 at most");
  for (int warp = 0; warp < threads / 32; ++warp) warps.emplace_back(32);
  const std::vector<T> x(input.begin(), input.end()), w(weight.begin(), weight.end());
  const int volumes = static_cast<int>(input.size()) / (in_channels * cells);
  Floats output(static_cast<size_t>(volumes * rows * cells), std::numeric_limits<float>::quiet_NaN());
  std::vector<std::jthread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      threadIdx.x = thread;
      for (int i = 0; i < blocks_x * blocks_y * volumes; ++i) {
        blockIdx = {i % blocks_x, i / blocks_x % blocks_y, i / blocks_x / blocks_y};
        kernel(x.data(), w.data(), output.data());
        __syncthreads();
      }
    });
  running.clear();  // waits for them
  return output;
}

}  // namespace

Floats run_kernel(const Floats& input, const Floats& weight) { return run(conv_transpose3d, input, weight); }

void print_kernel_bars() {
  std::puts(
      "\nThe kernel ran on the CPU, which says nothing of its speed: a bar needs nvcc and an NVIDIA GPU.");
}

}  // namespace exercise

void __syncthreads() { exercise::block.arrive_and_wait(); }
void __syncwarp() { exercise::warps[static_cast<size_t>(threadIdx.x / 32)].arrive_and_wait(); }

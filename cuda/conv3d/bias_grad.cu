// The gradient of a bias: the sum of the output's gradient over batch and cells, for each channel.
//
// Each element is read once. The few channels do not fill a GPU, so each channel is cut into parts. A block
// adds one part in double; if there is more than one, a second kernel adds the parts in order. The number of
// parts, and so the bits, depend on the sizes only.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/dispatch.h>

#include <algorithm>

namespace vox::cuda::conv {

namespace {

constexpr int block_threads = 256;
constexpr int64_t wanted_blocks = h200.multiprocessors * 8;  // as many as are there at once
constexpr int64_t least_part = 16 * block_threads;

/// Part `blockIdx.x % parts` of channel `blockIdx.x / parts`. A channel's elements are numbered through the
/// batch.
template <class T, class Sum>
__global__ void __launch_bounds__(block_threads)
    part_kernel(const T* grad, Sum* sums, int64_t batch, int64_t channels, int64_t cells, int64_t parts) {
  __shared__ double of_warps[block_threads / 32];
  for (int64_t job = blockIdx.x; job < channels * parts; job += gridDim.x) {
    const int64_t channel = job / parts, part = job % parts, length = (batch * cells + parts - 1) / parts;
    const int64_t begin = part * length, end = min(batch * cells, begin + length);
    double sum = 0;
    for (int64_t n = begin / cells; n * cells < end; ++n) {
      const T* const image = grad + (n * channels + channel) * cells;
      const int64_t last = min(cells, end - n * cells);
#pragma unroll 8
      for (int64_t i = max(int64_t{0}, begin - n * cells) + threadIdx.x; i < last; i += block_threads)
        sum += static_cast<double>(image[i]);
    }
    for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(~0u, sum, half);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < block_threads / 32; ++warp) sum += of_warps[warp];
      sums[job] = static_cast<Sum>(sum);
    }
    __syncthreads();  // before of_warps is written again
  }
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    add_parts_kernel(const double* sums, T* dbias, int64_t channels, int64_t parts) {
  for (int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; c < channels;
       c += int64_t{gridDim.x} * blockDim.x) {
    double sum = 0;
    for (int64_t i = 0; i < parts; ++i) sum += sums[c * parts + i];
    dbias[c] = static_cast<T>(sum);
  }
}

}  // namespace

void bias_grad(const Tensor& grad, Tensor& dbias) {
  const Launch launch("conv3d_weight_grad", dbias, {&grad});
  const int64_t batch = grad.size(0), channels = dbias.numel();
  const int64_t cells = grad.size(2) * grad.size(3) * grad.size(4);
  const int64_t parts =
      std::clamp<int64_t>(wanted_blocks / channels, 1, std::max<int64_t>(1, batch * cells / least_part));
  const unsigned blocks = grid_for(channels * parts, 1);
  visit_floating_storage("conv3d_weight_grad", grad.dtype(), [&]<class T>(T) {
    const T* const from = vox::detail::ptr<T>(grad);
    T* const to = vox::detail::mutable_ptr<T>(dbias);
    if (parts == 1) {
      part_kernel<<<blocks, block_threads, 0, launch.stream()>>>(from, to, batch, channels, cells, parts);
    } else {
      const Workspace sums(launch, channels * parts * int64_t{sizeof(double)});
      part_kernel<<<blocks, block_threads, 0, launch.stream()>>>(from, sums.as<double>(), batch, channels,
                                                                 cells, parts);
      add_parts_kernel<<<grid_for(channels, block_threads), block_threads, 0, launch.stream()>>>(
          sums.as<double>(), to, channels, parts);
    }
    launch.check();
  });
}

}  // namespace vox::cuda::conv

#pragma once

// f32 tensors as scaled f16 numbers, for sums of products over cells.
//
// TF32 and f16 have the same 11 bits of precision, but f16 has a short range. Each channel is multiplied by
// the power of two that scales its largest finite value to 2^14 ... 2^15, and the result is divided by the
// powers of its two channels. Values down to 2^-29 of their channel's largest then have all their bits, and
// the error of a smaller one is 2^-40 of the largest, which is nothing in a sum over all cells of the
// channel. (It would be too much in a convolution, whose results depend on few cells each.) Inf and NaN stay
// so.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>

#include <algorithm>

namespace vox::cuda::conv {

/// As an operand (call.h).
struct ScaledF16 : F16 {
  /// The power of two that numbers up to `most` are multiplied by.
  static __device__ __forceinline__ float scale_for(float most) { return F16x3::scale_for(most); }
};

constexpr int size_threads = 256;

/// largest[c] = the largest finite |x| of channel c, as the bits of an f32, whose order is that of integers.
/// A block has a part of a channel of an image.
static __global__ void __launch_bounds__(size_threads)
    largest_kernel(const float* x, unsigned* largest, int channels, int64_t cells) {
  const int channel = static_cast<int>(blockIdx.x) % channels;
  const float* const from = x + blockIdx.x * cells;
  unsigned most = 0;
  for (int64_t i = blockIdx.y * size_threads + threadIdx.x; i < cells; i += gridDim.y * size_threads)
    add_finite(most, from[i]);
  most = __reduce_max_sync(0xffffffff, most);
  if (threadIdx.x % 32 == 0 && most > 0) atomicMax(largest + channel, most);
}

/// The largest values of the channels of x (N, C, D, H, W), in memory of the launch.
class Largest {
 public:
  Largest(const Launch& launch, const Tensor& x) : memory_(launch, x.size(1) * int64_t{sizeof(unsigned)}) {
    const int64_t cells = x.size(2) * x.size(3) * x.size(4);
    launch.check(cudaMemsetAsync(memory_.as<unsigned>(), 0, static_cast<size_t>(x.size(1)) * sizeof(unsigned),
                                 launch.stream()));
    const dim3 grid(static_cast<unsigned>(x.size(0) * x.size(1)),
                    static_cast<unsigned>(std::clamp<int64_t>(cells / (16 * size_threads), 1, 64)));
    largest_kernel<<<grid, size_threads, 0, launch.stream()>>>(
        vox::detail::ptr<float>(x), memory_.as<unsigned>(), narrow(x.size(1)), cells);
    launch.check();
  }
  const float* get() const { return memory_.as<float>(); }

 private:
  Workspace memory_;
};

}  // namespace vox::cuda::conv

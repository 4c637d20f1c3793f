#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <voxgrad/core/check.h>
#include <voxgrad/core/cuda.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/storage.h>

#include "tests/support/devices.h"
#include "tests/support/errors.h"

// Blocks of floats and three kernels: enough to exercise streams, memory and graphs without any op or Tensor.

namespace vox::testing {

/// Fails the test at the caller's line if a CUDA call failed.
#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaGetLastError())
#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaGetLastError())
#define SKIP_WITHOUT_CUDA() \
  if (!vox::cuda::is_available()) GTEST_SKIP() << "no CUDA device"

using Block = std::shared_ptr<Storage>;

inline Block floats(int64_t n, int index = 0) { return Storage::allocate(n * 4, Device::cuda(index)); }
inline float* ptr(const Block& block) { return static_cast<float*>(block->data()); }
inline int64_t count(const Block& block) { return block->bytes() / 4; }

inline cudaStream_t native(const cuda::Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}
inline cudaStream_t native_current(int index = 0) {
  return native(cuda::current_stream(Device::cuda(index)));
}

// Templates, so that several files may include this definition.
template <class = void>
__global__ void delay_kernel(int64_t cycles) {
  const int64_t start = clock64();
  while (clock64() - start < cycles) {
  }
}
template <class = void>
__global__ void affine_kernel(float* y, const float* x, float scale, float shift, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (x ? x[i] * scale : 0) + shift;
}

/// Keeps `stream` busy for about 50 ms, so that work which does not wait for it overtakes it.
inline void delay(cudaStream_t stream) {
  delay_kernel<><<<1, 1, 0, stream>>>(int64_t{80} * 1000 * 1000);
  EXPECT_CUDA(cudaGetLastError());
}
/// y = x * scale + shift in `stream`; without x: y = shift.
inline void affine(cudaStream_t stream, const Block& y, const Block& x, float scale, float shift) {
  const int64_t n = count(y);
  const auto blocks = static_cast<unsigned>((n + 255) / 256);
  affine_kernel<><<<blocks, 256, 0, stream>>>(ptr(y), x ? ptr(x) : nullptr, scale, shift, n);
  EXPECT_CUDA(cudaGetLastError());
}
inline void fill(cudaStream_t stream, const Block& y, float value) { affine(stream, y, nullptr, 0, value); }

/// The elements of a block, read in the current stream.
inline std::vector<float> read(const Block& block) {
  std::vector<float> values(static_cast<size_t>(count(block)));
  cuda::copy(values.data(), 0, block->data(), block->device().index, block->bytes(),
             cuda::CopyKind::device_to_host);
  return values;
}
inline void expect_all(const Block& block, float value) {
  const std::vector<float> values = read(block);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != value) {
      ADD_FAILURE() << "element " << i << " of " << values.size() << " is " << values[i] << ", not " << value;
      return;
    }
  }
}
/// Copies a whole block in the current stream, which notes that both are used in it.
inline void copy_block(const Block& to, const Block& from) {
  cuda::copy(to->data(), to->device().index, from->data(), from->device().index, to->bytes(),
             cuda::CopyKind::device_to_device);
}

}  // namespace vox::testing

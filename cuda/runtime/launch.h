#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <mutex>

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/guard.h>

namespace vox::cuda {

/// What every launcher does around its kernels:
///
///     void relu(const Tensor& input, Tensor& output) {
///       Launch launch("relu", output, {&input});
///       relu_kernel<<<grid_for(n, 256), 256, 0, launch.stream()>>>(...);
///       launch.check();
///     }
///
/// It makes the output's device current while it lives, reads the current stream of that device once, and
/// records that the stream uses the tensors, so that their memory is not reused too early. `others` holds the
/// inputs and all further outputs; undefined tensors and null pointers in it are skipped (a missing bias).
class Launch {
 public:
  /// Throws DeviceError unless every tensor is on the device of `output`, which must be a CUDA device.
  Launch(const char* op, const Tensor& output, std::initializer_list<const Tensor*> others = {});

  /// Notes that the stream uses one more tensor, for launchers that take lists of them.
  void uses(const Tensor& t) const;

  /// For cudaX calls and <<<grid, block, shared, launch.stream()>>>.
  cudaStream_t stream() const { return stream_; }

  /// Call it after one or several <<<>>>: throws CudaError, naming the op, if a launch was refused. Does not
  /// wait.
  void check() const;

  /// The same for the result of a CUDA call: `launch.check(cudaMemsetAsync(..., launch.stream()))`.
  void check(cudaError_t code) const;

  /// Allows `kernel` to be launched with this many bytes of dynamic shared memory; above 48 KiB CUDA requires
  /// a request. The request is made once for each device, and again only for more bytes, because it costs a
  /// tenth of a launch.
  template <auto* kernel>
  void allow_shared_memory(int bytes) const {
    static std::atomic<int> allowed[max_devices];
    static std::mutex mutex;
    std::atomic<int>& here = allowed[guard_.index()];
    if (bytes <= here.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex);
    if (bytes <= here.load(std::memory_order_relaxed)) return;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    here.store(bytes, std::memory_order_release);
  }

 private:
  friend class Workspace;

  const char* op_;
  DeviceGuard guard_;
  cudaStream_t stream_ = nullptr;
  cudaError_t earlier_ = cudaSuccess;  // pending from before this op
};

/// Device memory for the kernels of one launch. It comes from the pool and returns to it in the order of the
/// launch's stream. It costs the host a third of what a tensor costs. It counts as memory in use. The launch
/// must outlive it.
class Workspace {
 public:
  /// Throws OutOfMemoryError. 0 bytes are legal: then the address is null.
  Workspace(const Launch& launch, int64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Its first element; CUDA aligns memory to 256 bytes.
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  const Launch& launch_;
  int64_t bytes_;
  void* data_ = nullptr;
};

/// Number of blocks for a grid-stride loop over n >= 0 elements: at least 1 (CUDA refuses 0), and at most a
/// bound that fills any GPU many times over, so that a thread takes several elements of a huge tensor. The
/// bound is a constant, not a property of the device, so that a kernel runs the same way everywhere.
inline unsigned grid_for(int64_t n, int block) {
  constexpr int64_t most = int64_t{1} << 20;
  return static_cast<unsigned>(std::clamp<int64_t>(n / block + (n % block != 0), 1, most));
}

}  // namespace vox::cuda

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <voxgrad/core/device.h>

// Note [CUDA streams]
//
// Every op on a CUDA device runs in the *current stream* of that device: of this thread, as the innermost
// living StreamGuard set it, else one stream per device that the library makes and all threads share. CUDA's
// legacy default stream is never used.
//
// Work in one stream runs in the order of its submission. Work in two streams is unordered until one waits
// for the other:
//
//     vox::cuda::Stream side;
//     side.wait(vox::cuda::current_stream());  // x was made in the current stream
//     {
//       vox::cuda::StreamGuard guard(side);
//       y = vox::relu(x);
//     }
//     vox::cuda::current_stream().wait(side);  // y may be used here now
//
// Memory needs no care: a tensor's memory is given to somebody else only after every stream that an op used
// it in has passed that op, whichever thread drops the last handle.
//
// Note [CUDA graphs]
//
// Ops may be captured: make a Stream, set it by a StreamGuard, and call CUDA's cudaStreamBeginCapture and
// cudaStreamEndCapture on its native_handle(). Run the same ops once before (lazy set-up cannot be captured),
// and synchronize. Inside a capture copies between host and device are refused (CudaError), so is
// synchronize(). As for memory:
//  - A tensor made before the capture that the graph reads or writes: keep it while you launch the graph.
//    If its last handle goes away *during* the capture, the graph keeps the memory, and it is freed when the
//    graph and its executables are destroyed.
//  - A tensor made and dropped inside the capture is memory of the graph, reused inside it: no rules.
//  - A tensor made inside that lives on (a result) has the same address in every launch. A graph with such
//    tensors can be launched more than once only if it was instantiated with
//    cudaGraphInstantiateFlagAutoFreeOnLaunch. Launch it in the stream of its capture and keep the tensor
//    until after the last launch. It is simpler to write results into tensors made before the capture
//    (copy_); then no flag is needed.

namespace vox::cuda {

class StreamImpl;

/// Whether this build has CUDA, and this machine a GPU that its driver can use. Never throws.
bool is_available() noexcept;

/// Number of CUDA devices; 0 where is_available() is false. Never throws.
int device_count() noexcept;

/// Waits until all work on `device` is done. An error of a kernel that ran earlier is thrown here, as
/// CudaError.
void synchronize(Device device = Device::cuda());

/// A queue of work on one device. Copying a Stream makes a second handle on the same queue, which is
/// destroyed with its last handle.
class Stream {
 public:
  /// A new stream that does not synchronise with CUDA's legacy stream. Throws DeviceError without CUDA.
  explicit Stream(Device device = Device::cuda());
  Stream(const Stream&) = default;  // and so no move: a Stream is never empty
  Stream& operator=(const Stream&) = default;

  Device device() const;

  /// The cudaStream_t, for calls to CUDA itself. Valid as long as this Stream or a copy of it.
  void* native_handle() const;

  /// Returns when all work submitted so far is done. Throws CudaError if some of it failed.
  void synchronize() const;

  /// Work submitted to this stream from now on starts after everything submitted to `other` so far. Does not
  /// block the caller. The streams may be of different devices.
  void wait(const Stream& other) const;

  friend bool operator==(const Stream&, const Stream&) = default;

 private:
  explicit Stream(std::shared_ptr<StreamImpl> impl) : impl_(std::move(impl)) {}
  friend Stream current_stream(Device device);
  friend class StreamGuard;

  std::shared_ptr<StreamImpl> impl_;
};

/// The stream that ops of this thread on `device` run in. Throws DeviceError if there is no such device.
Stream current_stream(Device device);
inline Stream current_stream() { return current_stream(Device::cuda()); }

/// Makes `stream` the current stream of its device for this thread, as long as the guard lives. Guards nest.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream stream_;
  StreamImpl* previous_;  // kept alive by the guard that set it; null for the shared stream
};

/// Bytes of one device. `in_use` counts what tensors asked for, `reserved` what the pool holds of the GPU's
/// memory, used or ready for reuse (memory of captured graphs is counted in `in_use` alone).
struct MemoryStats {
  int64_t in_use = 0;
  int64_t peak_in_use = 0;
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
};
MemoryStats memory_stats(Device device = Device::cuda());

/// Makes the present numbers the peaks.
void reset_peak_memory_stats(Device device = Device::cuda());

/// Gives unused memory of the pool and of graphs back to the GPU, for other programs. Waits for the work of
/// voxgrad's streams on `device` (those that are not being captured).
void empty_cache(Device device = Device::cuda());

}  // namespace vox::cuda

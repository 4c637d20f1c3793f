#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <voxgrad/core/device.h>
#include <voxgrad/core/memory.h>

// Note [CUDA streams]
//
// Every op on a CUDA device runs in this thread's *current stream* of that device. It is the stream that the
// innermost living StreamGuard set. Without a guard it is a stream that the library makes for the device and
// that all threads share. CUDA's legacy default stream is never used, unless a program borrows it.
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
// Memory needs no care: a tensor's memory is reused only after every stream in which an op used it has passed
// that op, whichever thread drops the last handle.
//
// Note [CUDA graphs]
//
// Ops may be captured once and launched many times: by a Graph, below, or by CUDA's own calls
// cudaStreamBeginCapture and cudaStreamEndCapture on the native_handle() of a Stream that a StreamGuard has
// set. Before the capture, run the same ops once (lazy set-up cannot be captured) and synchronize. During a
// capture, copies between host and device and synchronize() throw CudaError. Three kinds of tensors differ in
// what happens to their memory:
//  - A tensor made before the capture that the graph reads or writes: keep it while you launch the graph.
//    If its last handle goes away *during* the capture, the graph keeps the memory, and it is freed when the
//    graph and its executables are destroyed.
//  - A tensor made and dropped inside the capture uses memory of the graph and needs no care.
//  - A tensor made inside that lives on (a result) has the same address in every launch. A graph with such
//    tensors can be launched more than once only if it was instantiated with
//    cudaGraphInstantiateFlagAutoFreeOnLaunch. Launch it in the stream of its capture and keep the tensor
//    until after the last launch. It is simpler to write results into tensors made before the capture
//    (copy_); then no flag is needed.

namespace vox::cuda {

class StreamImpl;
class GraphImpl;

/// Whether this build has CUDA, and this machine a GPU that its driver can use. Never throws.
bool is_available() noexcept;

/// The name of the GPU, such as "NVIDIA H100 80GB HBM3".
std::string device_name(Device device = Device::cuda());

/// Bytes of the GPU's memory; all processes count. The unused memory of voxgrad's pool is not free until
/// empty_cache() returns it.
struct DeviceMemory {
  int64_t free = 0, total = 0;
};
DeviceMemory device_memory(Device device = Device::cuda());

/// Number of CUDA devices; 0 if is_available() is false. Never throws.
int device_count() noexcept;

/// Waits until all work on `device` is done. Throws CudaError if a kernel that ran earlier failed.
void synchronize(Device device = Device::cuda());

/// A queue of work on one device. Copying a Stream makes a second handle on the same queue. When the last
/// handle is gone, the next new Stream takes the queue over, behind the work that is still in it.
class Stream {
 public:
  /// A new stream that does not synchronise with CUDA's legacy stream. Throws DeviceError without CUDA.
  explicit Stream(Device device = Device::cuda());
  /// The stream behind a cudaStream_t of another library; null is CUDA's legacy stream. It stays that
  /// library's, which keeps it until this Stream, its copies and all tensors made or used in it are gone.
  /// Throws DeviceError.
  static Stream borrow(void* native_handle, Device device);
  Stream(const Stream&) = default;  // declaring it suppresses moves, so a Stream is never empty
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

/// A point in the work of a stream. A copy is a second handle on the same event.
///
///     vox::cuda::Event begin, end;
///     begin.record();
///     y = net(x);
///     end.record();
///     double ms = end.milliseconds_since(begin);
class Event {
 public:
  explicit Event(Device device = Device::cuda());

  /// Moves the event to the end of the work submitted so far to this thread's current stream, or to `stream`.
  void record() const;
  void record(const Stream& stream) const;
  /// Whether the work before the event is done; true for an event that was never recorded. synchronize()
  /// waits for that work.
  bool is_done() const;
  void synchronize() const;
  /// Waits for both events, and returns the time between them. Throws CudaError if one was not recorded.
  double milliseconds_since(const Event& begin) const;

 private:
  Device device_;
  std::shared_ptr<void> event_;
};

/// The ops of `f`, captured in a stream of the graph's own and launched by one call (Note [CUDA graphs]):
///
///     Tensor x = ..., y;
///     vox::cuda::Graph graph([&] { y = net(x); });  // runs nothing
///     x.copy_(batch);
///     graph.replay();                               // y holds the result
///
/// The constructor throws what f throws. A replay starts after the work submitted to the current stream so
/// far, and work submitted later waits for it. Tensors made by f keep their addresses. Keep all tensors that
/// the graph uses until after the last replay.
class Graph {
 public:
  explicit Graph(const std::function<void()>& f, Device device = Device::cuda());
  void replay() const;

 private:
  std::shared_ptr<GraphImpl> impl_;
};

using vox::MemoryStats;
/// Like vox::memory_stats() and vox::reset_peak_memory_stats().
MemoryStats memory_stats(Device device = Device::cuda());
void reset_peak_memory_stats(Device device = Device::cuda());

/// Returns unused memory of the pool and of graphs to the GPU, for other programs. Waits for the work of
/// voxgrad's streams on `device`, except those that are being captured.
void empty_cache(Device device = Device::cuda());

}  // namespace vox::cuda

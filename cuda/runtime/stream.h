#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include <voxgrad/core/cuda.h>

namespace vox::cuda {

/// What a Stream is a handle to: a cudaStream_t, and an event for which other streams can wait.
class StreamImpl : public std::enable_shared_from_this<StreamImpl> {
 public:
  StreamImpl(const char* op, int index);                         ///< a new stream
  StreamImpl(const char* op, int index, cudaStream_t borrowed);  ///< one that another library destroys
  ~StreamImpl();
  StreamImpl(const StreamImpl&) = delete;
  StreamImpl& operator=(const StreamImpl&) = delete;

  /// For what may outlive all handles: voxgrad's own streams live as long as the program, so that no one
  /// keeps them from their next user.
  std::shared_ptr<StreamImpl> keep() {
    return owned_ ? std::shared_ptr<StreamImpl>(std::shared_ptr<void>(), this) : shared_from_this();
  }

  cudaStream_t handle() const { return handle_; }
  int index() const { return index_; }

  /// Work submitted here from now on starts after everything submitted to `other` so far.
  void wait(const char* op, const StreamImpl& other) const;

  /// Returns when all work submitted so far is done; CudaError if it is being captured.
  void synchronize(const char* op) const;

 private:
  cudaStream_t handle_ = nullptr;
  bool owned_;
  // Every wait() on this stream records it again. If two threads do so at once, they wait for a little more
  // than they asked for, never for less.
  cudaEvent_t event_ = nullptr;
  int index_;
};

/// This thread's current stream of device `index`; throws if there is no such device.
StreamImpl& current(const char* op, int index);

/// The capture that a stream takes part in.
struct Capture {
  bool running = false;         // begun and not ended; also true if an error has invalidated it
  unsigned long long id = 0;    // unique in this process; 0 without a valid capture
  cudaGraph_t graph = nullptr;  // what is being captured; null without a valid capture
};
Capture capture_of(const StreamImpl& stream);

}  // namespace vox::cuda

#include <voxgrad/core/check.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/guard.h>
#include <voxgrad/cuda/runtime/stream.h>

#include <array>

namespace vox::cuda {

namespace {

// Null: the device's shared stream. The pointers are plain, so the array needs no destructor and tensors may
// be freed after this thread's other thread_locals. The StreamGuard that set a pointer keeps its stream
// alive.
thread_local std::array<StreamImpl*, max_devices> current_streams{};

}  // namespace

StreamImpl::StreamImpl(const char* op, int index) : owned_(true), index_(index) {
  const DeviceGuard device(op, index);
  const OutsideCapture outside;
  check_cuda(op, cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
  const cudaError_t code = cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
  if (code != cudaSuccess) ignore_error(cudaStreamDestroy(handle_));
  check_cuda(op, code);
}

StreamImpl::StreamImpl(const char* op, int index, cudaStream_t borrowed)
    : handle_(borrowed), owned_(false), index_(index) {
  const DeviceGuard device(op, index);
  const OutsideCapture outside;
  check_cuda(op, cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

StreamImpl::~StreamImpl() {
  const OutsideCapture outside;
  ignore_error(cudaEventDestroy(event_));
  if (owned_) ignore_error(cudaStreamDestroy(handle_));  // takes effect when its work is done
}

void StreamImpl::wait(const char* op, const StreamImpl& other) const {
  if (this == &other) return;
  check_cuda(op, cudaEventRecord(other.event_, other.handle_));
  check_cuda(op, cudaStreamWaitEvent(handle_, other.event_, 0));
}

void StreamImpl::synchronize(const char* op) const {
  check<CudaError>(!capture_of(*this).running, op,
                   ": the stream is being captured in a CUDA graph, which only records work, ",
                   "so there is nothing to wait for; end the capture first");
  const OutsideCapture outside;
  check_cuda(op, cudaStreamSynchronize(handle_));
}

StreamImpl& current(const char* op, int index) {
  DeviceState& device = device_state(op, index);
  StreamImpl* stream = current_streams[static_cast<size_t>(index)];
  return stream ? *stream : *device.shared_stream;
}

Capture capture_of(const StreamImpl& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  Capture capture;
#if CUDART_VERSION >= 13000
  const cudaError_t code = cudaStreamGetCaptureInfo(stream.handle(), &status, &capture.id, &capture.graph);
#else
  const cudaError_t code = cudaStreamGetCaptureInfo_v2(stream.handle(), &status, &capture.id, &capture.graph);
#endif
  check_cuda("capture_of", code);
  capture.running = status != cudaStreamCaptureStatusNone;
  if (status != cudaStreamCaptureStatusActive) {  // CUDA leaves the other results undefined
    capture.id = 0;
    capture.graph = nullptr;
  }
  return capture;
}

Stream::Stream(Device device) : impl_(make_stream("Stream", index_of("Stream", device))) {}
Stream Stream::borrow(void* native_handle, Device device) {
  return Stream(borrow_stream("Stream::borrow", index_of("Stream::borrow", device),
                              static_cast<cudaStream_t>(native_handle)));
}
Device Stream::device() const { return Device::cuda(impl_->index()); }
void* Stream::native_handle() const { return impl_->handle(); }
void Stream::synchronize() const { impl_->synchronize("Stream::synchronize"); }
void Stream::wait(const Stream& other) const { impl_->wait("Stream::wait", *other.impl_); }

Stream current_stream(Device device) {
  return Stream(current("current_stream", index_of("current_stream", device)).shared_from_this());
}

StreamGuard::StreamGuard(Stream stream) : stream_(stream) {
  StreamImpl*& current = current_streams[static_cast<size_t>(stream_.impl_->index())];
  previous_ = current;
  current = stream_.impl_.get();
}

StreamGuard::~StreamGuard() { current_streams[static_cast<size_t>(stream_.impl_->index())] = previous_; }

void synchronize(Device device) {
  DeviceState& state = device_state("synchronize", index_of("synchronize", device));
  for (const auto& stream : living_streams(state)) {
    check<CudaError>(!capture_of(*stream).running, "synchronize: a stream of ", device,
                     " is being captured in a CUDA graph; end the capture first");
  }
  const DeviceGuard guard("synchronize", device.index);
  check_cuda("synchronize", cudaDeviceSynchronize());
  free_deferred(state);
}

MemoryStats memory_stats(Device device) {
  return memory_stats(device_state("memory_stats", index_of("memory_stats", device)));
}

void reset_peak_memory_stats(Device device) {
  reset_peaks(device_state("reset_peak_memory_stats", index_of("reset_peak_memory_stats", device)));
}

void empty_cache(Device device) { empty_cache(device_state("empty_cache", index_of("empty_cache", device))); }

}  // namespace vox::cuda

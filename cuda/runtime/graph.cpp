// Events, captured graphs, and what a device is: CUDA's calls behind the classes of core/cuda.h.
#include <voxgrad/core/check.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/guard.h>
#include <voxgrad/cuda/runtime/stream.h>

namespace vox::cuda {

namespace {

cudaEvent_t native(const std::shared_ptr<void>& event) { return static_cast<cudaEvent_t>(event.get()); }
cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native_handle()); }

}  // namespace

// ---- Devices ----------------------------------------------------------------------------------------------

std::string device_name(Device device) {
  cudaDeviceProp properties{};
  check_cuda("device_name", cudaGetDeviceProperties(&properties, index_of("device_name", device)));
  return properties.name;
}

DeviceMemory device_memory(Device device) {
  const DeviceGuard guard("device_memory", index_of("device_memory", device));
  const OutsideCapture outside;
  size_t free = 0, total = 0;
  check_cuda("device_memory", cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

// ---- Events -----------------------------------------------------------------------------------------------

Event::Event(Device device) : device_(device) {
  const DeviceGuard guard("Event", index_of("Event", device));
  const OutsideCapture outside;
  cudaEvent_t event = nullptr;
  check_cuda("Event", cudaEventCreate(&event));
  event_ = {event, [](void* e) { ignore_error(cudaEventDestroy(static_cast<cudaEvent_t>(e))); }};
}

void Event::record() const { record(current_stream(device_)); }

void Event::record(const Stream& stream) const {
  check<DeviceError>(stream.device() == device_, "Event::record: the event is on ", device_,
                     ", the stream on ", stream.device());
  check_cuda("Event::record", cudaEventRecord(native(event_), native(stream)));
}

bool Event::is_done() const {
  const OutsideCapture outside;
  const cudaError_t code = cudaEventQuery(native(event_));
  if (code == cudaErrorNotReady) {
    ignore_error(code);
    return false;
  }
  check_cuda("Event::is_done", code);
  return true;
}

void Event::synchronize() const {
  const OutsideCapture outside;
  check_cuda("Event::synchronize", cudaEventSynchronize(native(event_)));
}

double Event::milliseconds_since(const Event& begin) const {
  begin.synchronize();
  synchronize();
  float milliseconds = 0;
  check_cuda("Event::milliseconds_since",
             cudaEventElapsedTime(&milliseconds, native(begin.event_), native(event_)));
  return static_cast<double>(milliseconds);
}

// ---- Graphs -----------------------------------------------------------------------------------------------

class GraphImpl {
 public:
  GraphImpl(const std::function<void()>& f, Device device) : stream_(device) {
    const DeviceGuard device_guard("Graph", device.index);
    const StreamGuard stream_guard(stream_);
    check_cuda("Graph", cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      f();
    } catch (...) {
      ignore_error(cudaStreamEndCapture(native(stream_), &graph));
      if (graph) ignore_error(cudaGraphDestroy(graph));
      throw;
    }
    check_cuda("Graph", cudaStreamEndCapture(native(stream_), &graph));
    // So that a graph whose results live on can be launched again.
    const cudaError_t code =
        cudaGraphInstantiate(&executable_, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    ignore_error(cudaGraphDestroy(graph));
    check_cuda("Graph", code);
  }
  ~GraphImpl() {
    const OutsideCapture outside;
    ignore_error(cudaGraphExecDestroy(executable_));
  }
  GraphImpl(const GraphImpl&) = delete;
  GraphImpl& operator=(const GraphImpl&) = delete;

  void replay() const {
    const Stream caller = current_stream(stream_.device());
    stream_.wait(caller);
    check_cuda("Graph::replay", cudaGraphLaunch(executable_, native(stream_)));
    caller.wait(stream_);
  }

 private:
  Stream stream_;
  cudaGraphExec_t executable_ = nullptr;
};

Graph::Graph(const std::function<void()>& f, Device device) {
  check<ValueError>(static_cast<bool>(f), "Graph: argument 'f' is an empty function");
  index_of("Graph", device);
  impl_ = std::make_shared<GraphImpl>(f, device);
}

void Graph::replay() const { impl_->replay(); }

}  // namespace vox::cuda

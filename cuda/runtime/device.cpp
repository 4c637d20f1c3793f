#include <voxgrad/core/check.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/guard.h>

#include <algorithm>
#include <cstdint>

namespace vox::cuda {

namespace {

struct DeviceCount {
  int count = 0;
  cudaError_t code = cudaSuccess;  // why there is none
  DeviceCount() {
    code = cudaGetDeviceCount(&count);
    ignore_error(code);
    count = code == cudaSuccess ? std::min(count, max_devices) : 0;
  }
};

const DeviceCount& counted() {
  static const DeviceCount counted;
  return counted;
}

cudaMemPool_t make_pool(const char* op, int index) {
  int supported = 0;
  check_cuda(op, cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, index));
  check<DeviceError>(supported != 0, op, ": cuda:", index,
                     " has no stream-ordered memory pools, which voxgrad needs");
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.handleTypes = cudaMemHandleTypeNone;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = index;
  cudaMemPool_t pool = nullptr;
  check_cuda(op, cudaMemPoolCreate(&pool, &props));
  // Keep freed memory for the next allocation; by default every synchronisation would return it to the
  // system.
  uint64_t threshold = UINT64_MAX;
  const cudaError_t code = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold);
  if (code != cudaSuccess) ignore_error(cudaMemPoolDestroy(pool));
  check_cuda(op, code);
  return pool;
}

void make_state(const char* op, DeviceState& state, int index) {
  const DeviceGuard guard(op, index);
  const OutsideCapture outside;
  size_t free = 0, total = 0;
  check_cuda(op, cudaMemGetInfo(&free, &total));
  state.index = index;
  state.total_bytes = static_cast<int64_t>(total);
  if (!state.pool) state.pool = make_pool(op, index);
  state.shared_stream = std::make_shared<StreamImpl>(op, index);
  state.streams.push_back(state.shared_stream);
}

}  // namespace

bool is_available() noexcept { return device_count() > 0; }

int device_count() noexcept { return counted().count; }

void check_device(const char* function, int index) {
  const int count = device_count();
  if (index >= 0 && index < count) [[likely]]
    return;
  check<DeviceError>(count > 0, function, ": got cuda:", index,
                     ", but this machine has no usable CUDA device: ", describe(counted().code));
  throw DeviceError(str(function, ": got cuda:", index,
                        ", but the CUDA devices of this machine are cuda:0 to ", "cuda:", count - 1));
}

int index_of(const char* function, Device device) {
  check<DeviceError>(device.is_cuda(), function, ": needs a CUDA device, got ", device);
  check_device(function, device.index);
  return device.index;
}

DeviceState& device_state(const char* op, int index) {
  check_device(op, index);
  static DeviceState* const states = new DeviceState[static_cast<size_t>(device_count())];
  DeviceState& state = states[index];
  std::call_once(state.made, [&] { make_state(op, state, index); });
  return state;
}

std::shared_ptr<StreamImpl> make_stream(const char* op, int index) {
  DeviceState& state = device_state(op, index);
  const std::lock_guard lock(state.streams_mutex);
  for (const auto& stream : state.streams)  // one that took part in a capture does so until the capture ends
    if (stream.use_count() == 1 && !capture_of(*stream).running) return stream;
  return state.streams.emplace_back(std::make_shared<StreamImpl>(op, index));
}

std::shared_ptr<StreamImpl> borrow_stream(const char* op, int index, cudaStream_t handle) {
  DeviceState& state = device_state(op, index);
  const std::lock_guard lock(state.streams_mutex);
  std::erase_if(state.borrowed, [](const auto& other) { return other.expired(); });
  for (const auto& known : state.borrowed)
    if (auto stream = known.lock(); stream && stream->handle() == handle) return stream;
  const auto stream = std::make_shared<StreamImpl>(op, index, handle);
  state.borrowed.push_back(stream);
  return stream;
}

std::vector<std::shared_ptr<StreamImpl>> living_streams(DeviceState& device) {
  const std::lock_guard lock(device.streams_mutex);
  std::vector<std::shared_ptr<StreamImpl>> living = device.streams;
  for (const auto& known : device.borrowed) {
    if (auto stream = known.lock()) living.push_back(std::move(stream));
  }
  return living;
}

}  // namespace vox::cuda

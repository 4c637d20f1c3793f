#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include <voxgrad/core/cuda.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/cuda/runtime/memory.h>
#include <voxgrad/cuda/runtime/stream.h>

namespace vox::cuda {

/// Devices from this number on are not used: it is the size of arrays indexed by device.
inline constexpr int max_devices = 64;

/// What the library keeps for one device. It is made at its first use and never destroyed, because tensors of
/// static lifetime may be freed after all other objects.
struct DeviceState {
  int index = 0;
  int64_t total_bytes = 0;                    // memory of the GPU
  cudaMemPool_t pool = nullptr;               // all memory of tensors comes from here
  std::shared_ptr<StreamImpl> shared_stream;  // current where no StreamGuard says otherwise
  Memory memory;

  std::mutex streams_mutex;
  std::vector<std::shared_ptr<StreamImpl>> streams;  // those without another owner wait for their next user
  std::vector<std::weak_ptr<StreamImpl>> borrowed;   // of other libraries

  std::once_flag made;
};

/// The number of `device`. Throws DeviceError, naming `function`, if it is not a CUDA device of this machine.
int index_of(const char* function, Device device);

/// The state of device `index`. Throws DeviceError, naming `op`, if there is no such device.
DeviceState& device_state(const char* op, int index);

/// A stream that nobody has a handle to, or one of another library.
std::shared_ptr<StreamImpl> make_stream(const char* op, int index);
std::shared_ptr<StreamImpl> borrow_stream(const char* op, int index, cudaStream_t stream);
/// All of them.
std::vector<std::shared_ptr<StreamImpl>> living_streams(DeviceState& device);

}  // namespace vox::cuda

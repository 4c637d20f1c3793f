#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <voxgrad/core/cuda.h>

namespace vox::cuda {

struct DeviceState;

/// One allocation, and the streams that its free has to wait for.
struct Block {
  char* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<StreamImpl> stream;               // allocated and freed in its order
  std::vector<std::shared_ptr<StreamImpl>> others;  // used in these as well
  unsigned long long capture = 0;                   // memory of a graph: the id of its capture
  // Tensors at this address: CUDA may use the memory of a graph again while a tensor of the graph, which is
  // gone, lives. The last one frees.
  int owners = 1;
};

/// By address; with greater, lower_bound(p) is the block that starts at or before p. Blocks move between
/// these as nodes, so that no free needs memory of the host.
using BlockMap = std::multimap<const char*, Block, std::greater<>>;

/// The allocations of one device. CUDA is never called with the mutex held, because a CUDA callback locks it.
struct Memory {
  std::mutex mutex;
  BlockMap blocks;
  BlockMap deferred;  // dropped, but not freed: during a capture, or because CUDA refused a call
  std::atomic<bool> has_deferred{false};
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> peak_in_use{0};
};

/// Allocates `bytes` > 0 from the device's pool, in the order of `stream`. The caller has made the device
/// current and holds an OutsideCapture, because CUDA treats this call as one that might affect a capture.
/// Throws OutOfMemoryError.
void* take_from_pool(const char* op, DeviceState& device, int64_t bytes, cudaStream_t stream);
/// Frees them in the order of `stream`. An error is left to the next op: a sticky one comes back there, and
/// any other means that CUDA no longer holds this memory.
void give_to_pool(DeviceState& device, void* data, int64_t bytes, cudaStream_t stream) noexcept;

/// Records that the block around `address` is used in `stream` from now on. Memory of other owners is
/// ignored.
void note_use(DeviceState& device, const void* address, StreamImpl& stream);

/// Tries again to free the blocks that were dropped, but not freed.
void free_deferred(DeviceState& device) noexcept;

MemoryStats memory_stats(DeviceState& device);
void reset_peaks(DeviceState& device);
void empty_cache(DeviceState& device);

}  // namespace vox::cuda

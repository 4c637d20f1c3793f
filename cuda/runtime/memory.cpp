#include <voxgrad/core/check.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/guard.h>
#include <voxgrad/cuda/runtime/memory.h>
#include <voxgrad/cuda/runtime/stream.h>

#include <algorithm>
#include <utility>

// Note [Freeing CUDA memory]
//
// A block is freed in the order of the stream it was allocated in, after that stream has waited for every
// other stream that used it. During a graph capture work is only recorded, not executed, so it depends on the
// block:
//
//  - memory of this graph (allocated in the same capture): its free becomes a node of the graph;
//  - other memory that the capture uses: every launch of the graph will read or write it, so the graph takes
//    ownership as a "user object". We get it back when the graph and its executables are destroyed;
//  - other memory, dropped while this thread captures: it is freed later, by free_deferred().

namespace vox::cuda {

namespace {

using Node = BlockMap::node_type;

void defer(DeviceState& device, Node block) noexcept {
  const std::lock_guard lock(device.memory.mutex);
  device.memory.deferred.insert(std::move(block));
  device.memory.has_deferred = true;
}

struct Keepsake {
  DeviceState* device;
  Node block;
};

// CUDA calls this in a thread of its own, where CUDA calls are forbidden. So it only queues the block.
void CUDART_CB graph_is_gone(void* data) {
  const std::unique_ptr<Keepsake> keepsake(static_cast<Keepsake*>(data));
  defer(*keepsake->device, std::move(keepsake->block));
}

void give_to_graph(DeviceState& device, Node& block, cudaGraph_t graph) {
  auto keepsake = std::make_unique<Keepsake>(Keepsake{&device, {}});
  cudaUserObject_t object = nullptr;
  check_cuda("deallocate",
             cudaUserObjectCreate(&object, keepsake.get(), graph_is_gone, 1, cudaUserObjectNoDestructorSync));
  keepsake.release()->block = std::move(block);
  const cudaError_t moved = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (moved != cudaSuccess) {
    ignore_error(moved);
    ignore_error(cudaUserObjectRelease(object, 1));  // calls graph_is_gone
  }
}

/// Makes `stream` wait for `other`, unless only one of them is being captured. Recorded work cannot be
/// ordered against running work; a program that uses a block in both states that it needs no order.
void wait_if_comparable(const StreamImpl& stream, const StreamImpl& other) {
  if (capture_of(stream).id == capture_of(other).id) stream.wait("deallocate", other);
}

/// Frees in the order of `stream`, after the other streams. CUDA may no longer know the memory if it belongs
/// to a graph that was never launched.
void free_in(DeviceState& device, const Block& block, const StreamImpl& stream) {
  if (block.stream.get() != &stream) wait_if_comparable(stream, *block.stream);
  for (const auto& other : block.others) wait_if_comparable(stream, *other);
  give_to_pool(device, block.data, block.bytes, stream.handle());
}

/// Throws if CUDA refuses a call; `node` then still holds the block.
void release(DeviceState& device, Node& node) {
  const Block& block = node.mapped();
  const DeviceGuard guard("deallocate", device.index);
  const OutsideCapture outside;
  const StreamImpl& here = current("deallocate", device.index);

  const Capture here_capture = capture_of(here);
  const Capture home_capture = block.stream.get() == &here ? here_capture : capture_of(*block.stream);
  if (block.capture != 0) {
    // In `here` if it takes part in the capture: the stream of the allocation may have been joined to it
    // already.
    if (here_capture.id == block.capture) return free_in(device, block, here);
    if (home_capture.id == block.capture) return free_in(device, block, *block.stream);
  }

  Capture user = home_capture;
  for (const auto& other : block.others) {
    if (!user.graph) {
      const Capture capture = capture_of(*other);
      if (capture.running) user = capture;
    }
  }
  if (user.graph) return give_to_graph(device, node, user.graph);
  if (user.running || here_capture.running) return defer(device, std::move(node));
  free_in(device, block, *block.stream);
}

void release_or_defer(DeviceState& device, Node block) noexcept {
  try {
    release(device, block);
  } catch (...) {  // memory is short, or CUDA is: at the end of the process it is gone
    defer(device, std::move(block));
  }
}

void raise_peak(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak;
  while (seen < value && !peak.compare_exchange_weak(seen, value)) {
  }
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ignore_error(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

void* take_from_pool(const char* op, DeviceState& device, int64_t bytes, cudaStream_t stream) {
  void* data = nullptr;
  cudaError_t code = cudaErrorMemoryAllocation;
  if (bytes <= device.total_bytes) {
    const auto size = static_cast<size_t>(bytes);
    code = cudaMallocFromPoolAsync(&data, size, device.pool, stream);
    if (code == cudaErrorMemoryAllocation && !is_capturing(stream)) {
      ignore_error(code);
      empty_cache(device);
      code = cudaMallocFromPoolAsync(&data, size, device.pool, stream);
    }
  }
  if (code == cudaErrorMemoryAllocation) {
    ignore_error(code);
    size_t free = 0, total = 0;
    ignore_error(cudaMemGetInfo(&free, &total));
    throw OutOfMemoryError(str(op, ": cannot allocate ", bytes, " bytes on cuda:", device.index, ": ", free,
                               " of ", device.total_bytes, " bytes are free, tensors hold ",
                               device.memory.in_use.load(), " (use smaller tensors, or drop some)"));
  }
  check_cuda(op, code);
  raise_peak(device.memory.peak_in_use, device.memory.in_use += bytes);
  return data;
}

void give_to_pool(DeviceState& device, void* data, int64_t bytes, cudaStream_t stream) noexcept {
  ignore_error(cudaFreeAsync(data, stream));
  device.memory.in_use -= bytes;
}

void* allocate(int64_t bytes, int index) {
  DeviceState& device = device_state("allocate", index);
  StreamImpl& stream = current("allocate", index);
  free_deferred(device);

  const DeviceGuard guard("allocate", index);
  const OutsideCapture outside;
  const Capture capture = capture_of(stream);
  BlockMap one;  // made first: once CUDA has given memory, nothing may fail
  Node block = one.extract(one.emplace(nullptr, Block{nullptr, bytes, stream.keep(), {}, capture.id}));
  void* data = take_from_pool("allocate", device, bytes, stream.handle());
  block.key() = block.mapped().data = static_cast<char*>(data);
  Node old;  // of a graph that is gone. Destroyed after the lock is released, because its stream may end
  const std::lock_guard lock(device.memory.mutex);
  if ((old = device.memory.blocks.extract(block.key()))) {
    block.mapped().owners += old.mapped().owners;
    device.memory.in_use -= old.mapped().bytes;
  }
  device.memory.blocks.insert(std::move(block));
  return data;
}

void deallocate(void* data, int index) noexcept {
  DeviceState& device = device_state("deallocate", index);
  Node block;
  {
    const std::lock_guard lock(device.memory.mutex);
    const auto found = device.memory.blocks.find(static_cast<const char*>(data));
    if (found == device.memory.blocks.end() || --found->second.owners > 0) return;
    block = device.memory.blocks.extract(found);
  }
  release_or_defer(device, std::move(block));
}

void free_deferred(DeviceState& device) noexcept {
  if (!device.memory.has_deferred) return;
  BlockMap blocks;
  {
    const std::lock_guard lock(device.memory.mutex);
    blocks.swap(device.memory.deferred);
    device.memory.has_deferred = false;
  }
  while (!blocks.empty()) release_or_defer(device, blocks.extract(blocks.begin()));
}

void note_use(DeviceState& device, const void* address, StreamImpl& stream) {
  const auto* byte = static_cast<const char*>(address);
  const std::lock_guard lock(device.memory.mutex);
  const auto found = device.memory.blocks.lower_bound(byte);
  if (found == device.memory.blocks.end()) return;
  Block& block = found->second;
  if (byte >= block.data + block.bytes || block.stream.get() == &stream) return;
  const bool known = std::any_of(block.others.begin(), block.others.end(),
                                 [&](const auto& other) { return other.get() == &stream; });
  if (!known) block.others.push_back(stream.keep());
}

int device_of(const char* function, const void* data) {
  cudaPointerAttributes attributes{};
  check_cuda(function, cudaPointerGetAttributes(&attributes, data));
  check<ValueError>(attributes.type == cudaMemoryTypeDevice, function,
                    ": the pointer must lead to memory of a CUDA device");
  return attributes.device;
}

void note_use(const void* data, int index) {
  note_use(device_state("note_use", index), data, current("note_use", index));
}

MemoryStats memory_stats(DeviceState& device) {
  free_deferred(device);
  const OutsideCapture outside;
  uint64_t reserved = 0, peak_reserved = 0;
  check_cuda("memory_stats",
             cudaMemPoolGetAttribute(device.pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  check_cuda("memory_stats",
             cudaMemPoolGetAttribute(device.pool, cudaMemPoolAttrReservedMemHigh, &peak_reserved));
  return {device.memory.in_use, device.memory.peak_in_use, static_cast<int64_t>(reserved),
          static_cast<int64_t>(peak_reserved)};
}

void reset_peaks(DeviceState& device) {
  const OutsideCapture outside;
  device.memory.peak_in_use = device.memory.in_use.load();
  uint64_t zero = 0;
  check_cuda("reset_peak_memory_stats",
             cudaMemPoolSetAttribute(device.pool, cudaMemPoolAttrReservedMemHigh, &zero));
}

void empty_cache(DeviceState& device) {
  free_deferred(device);
  const OutsideCapture outside;
  bool capturing = false;
  for (const auto& stream : living_streams(device)) {
    if (capture_of(*stream).running)
      capturing = true;
    else
      stream->synchronize("empty_cache");  // CUDA returns only memory whose free has executed
  }
  check_cuda("empty_cache", cudaMemPoolTrimTo(device.pool, 0));
  if (!capturing) check_cuda("empty_cache", cudaDeviceGraphMemTrim(device.index));
}

void* allocate_pinned(int64_t bytes) {
  const OutsideCapture outside;
  void* data = nullptr;
  const cudaError_t code =
      cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocPortable);
  if (code == cudaErrorMemoryAllocation) static_cast<void>(cudaGetLastError());
  check<OutOfMemoryError>(code != cudaErrorMemoryAllocation, "cannot pin ", bytes, " bytes of host memory");
  check_cuda("allocate_pinned", code);
  return data;
}

void deallocate_pinned(void* data) noexcept { ignore_error(cudaFreeHost(data)); }

void copy(void* to, int to_index, const void* from, int from_index, int64_t bytes, CopyKind kind) {
  if (bytes == 0) return;
  const OutsideCapture outside;
  const auto size = static_cast<size_t>(bytes);
  if (kind == CopyKind::device_to_device && to_index != from_index) {
    // Orders both devices: after the work that produced `from`, and before the work that overwrites it.
    StreamImpl& source = current("copy", from_index);
    StreamImpl& destination = current("copy", to_index);
    note_use(device_state("copy", from_index), from, destination);
    note_use(device_state("copy", to_index), to, destination);
    const DeviceGuard guard("copy", to_index);
    destination.wait("copy", source);
    check_cuda("copy", cudaMemcpyPeerAsync(to, to_index, from, from_index, size, destination.handle()));
    source.wait("copy", destination);
    return;
  }

  const bool to_host = kind == CopyKind::device_to_host;
  const bool from_host = kind == CopyKind::host_to_device;
  const int index = to_host ? from_index : to_index;
  DeviceState& device = device_state("copy", index);
  StreamImpl& stream = current("copy", index);
  const DeviceGuard guard("copy", index);
  if (to_host || from_host) {
    check<CudaError>(!capture_of(stream).running, "copy: the current stream of cuda:", index,
                     " is being captured in a CUDA graph, where ",
                     "copies between host and device are not allowed; make the copy before the capture");
  }
  if (!to_host) note_use(device, to, stream);
  if (!from_host) note_use(device, from, stream);
  const cudaMemcpyKind direction = to_host     ? cudaMemcpyDeviceToHost
                                   : from_host ? cudaMemcpyHostToDevice
                                               : cudaMemcpyDeviceToDevice;
  check_cuda("copy", cudaMemcpyAsync(to, from, size, direction, stream.handle()));
  // For pageable memory CUDA's rules would mostly suffice; for pinned memory they would not.
  if (to_host || from_host) stream.synchronize("copy");
}

}  // namespace vox::cuda

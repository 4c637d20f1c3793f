#pragma once

#include <cstdint>

/// What core needs from CUDA, in plain C++. cuda/ defines it; in a build without CUDA, core/cuda_absent.cpp
/// does, and every call throws DeviceError. `index` is the device number.
namespace vox::cuda {

/// Throws DeviceError, naming `function`, unless device `index` exists.
void check_device(const char* function, int index);

/// `bytes` > 0 from the device's own pool, for use in the current stream. Throws OutOfMemoryError.
void* allocate(int64_t bytes, int index);
/// Frees memory of allocate(). It is reused only after the work submitted so far in all streams that used it.
void deallocate(void* data, int index) noexcept;

/// The device whose memory `data` points into; ValueError, naming `function`, for host memory.
int device_of(const char* function, const void* data);

/// Records that the current stream uses the memory around `data` from now on. Memory of other owners is
/// ignored.
void note_use(const void* data, int index);

/// Pinned host memory, which the GPU reads and writes directly. Allocation is slow, so reuse the memory.
/// Throws OutOfMemoryError.
void* allocate_pinned(int64_t bytes);
void deallocate_pinned(void* data) noexcept;

/// Copies between host and device, within a device, or between two devices. The copy is ordered
/// with the current stream of the CUDA device, or of both devices if there are two. A copy between host and
/// device returns when the host memory may be reused or read, and throws CudaError while a graph is captured.
/// A copy between devices returns at once.
enum class CopyKind { host_to_device, device_to_host, device_to_device };
void copy(void* to, int to_index, const void* from, int from_index, int64_t bytes, CopyKind kind);

}  // namespace vox::cuda

#pragma once

#include <cstdint>

/// What core needs of CUDA, in plain C++: defined in cuda/, or in core/cuda_absent.cpp, where every
/// call throws DeviceError, in a build without CUDA. `index` is the device number.
namespace vox::cuda {

/// Throws DeviceError, naming `function`, unless device `index` exists.
void check_device(const char* function, int index);

/// `bytes` > 0 of the device's own pool, for use in the current stream from now on. Throws OutOfMemoryError.
void* allocate(int64_t bytes, int index);
/// Gives it back, for use by others after the work submitted so far in all streams that used it.
void deallocate(void* data, int index) noexcept;

/// Copies between host and device, or within or across devices, ordered on the current stream of the CUDA
/// side (of both sides, if they are two devices). Copies between host and device return when the host memory
/// may be reused or read; they are refused (CudaError) while a graph is captured. Copies between devices
/// return at once.
enum class CopyKind { host_to_device, device_to_host, device_to_device };
void copy(void* to, int to_index, const void* from, int from_index, int64_t bytes, CopyKind kind);

}  // namespace vox::cuda

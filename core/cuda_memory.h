#pragma once

#include <cstdint>

/// What core needs of CUDA, in plain C++: defined in cuda/memory.cu, or in core/cuda_absent.cpp, where every
/// call throws DeviceError, in a build without CUDA. `index` is the device number.
namespace vox::cuda {

/// Throws DeviceError, naming `function`, unless device `index` exists.
void check_device(const char* function, int index);

/// Stream-ordered memory of the device's own pool. Throws OutOfMemoryError.
void* allocate(int64_t bytes, int index);
void deallocate(void* data, int index) noexcept;

/// Copies between host and device, or within or across devices, ordered on the current stream of the CUDA
/// side. Returns when a host source may be reused and a host destination is filled.
enum class CopyKind { host_to_device, device_to_host, device_to_device };
void copy(void* to, int to_index, const void* from, int from_index, int64_t bytes, CopyKind kind);

}  // namespace vox::cuda

#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace vox::cuda {

/// CUDA's name and text of an error, and what the user can do about it.
std::string describe(cudaError_t code);

/// Says that the driver is missing (0) or too old. Versions are CUDA's numbers: 1000 * major + 10 * minor.
std::string describe_driver(int driver, int needed);

/// Throws CudaError, naming the op and CUDA's reason, unless `code` is cudaSuccess; OutOfMemoryError for
/// cudaErrorMemoryAllocation. Also clears cudaGetLastError(), so that the error is not reported twice.
void check_cuda(const char* op, cudaError_t code);

/// For destructors, which cannot throw. Clears cudaGetLastError(), so that the next launch is not blamed for
/// the error. An error that matters is sticky and comes back in the next check. At the end of the process
/// every call fails with cudaErrorCudartUnloading, which is harmless.
void ignore_error(cudaError_t code) noexcept;

}  // namespace vox::cuda

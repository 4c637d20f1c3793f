#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace vox::cuda {

/// CUDA's name and text of an error, and what to do about one that cannot be recovered from.
std::string describe(cudaError_t code);

/// Throws CudaError, naming the op and CUDA's reason, unless `code` is cudaSuccess; OutOfMemoryError for
/// cudaErrorMemoryAllocation. Also takes the error out of cudaGetLastError(), so that nobody else reports it.
void check_cuda(const char* op, cudaError_t code);

/// For destructors: an error there cannot be thrown. It is taken out of cudaGetLastError() (so that the next
/// launch is not blamed for it); one that matters is sticky and comes back in the next check. At the end of
/// the process every call fails with cudaErrorCudartUnloading, which is no error.
void ignore_error(cudaError_t code) noexcept;

}  // namespace vox::cuda

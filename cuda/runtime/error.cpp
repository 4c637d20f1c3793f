#include <voxgrad/core/check.h>
#include <voxgrad/cuda/runtime/error.h>

namespace vox::cuda {

namespace {

/// Errors after which every CUDA call of this process returns the same error.
bool is_sticky(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string describe(cudaError_t code) {
  std::string text = str(cudaGetErrorName(code), " (", cudaGetErrorString(code), ")");
  if (is_sticky(code))
    text +=
        "; an earlier kernel, of this op or of a previous one, failed, and this process can no longer use "
        "the GPU (CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which kernel)";
  return text;
}

void check_cuda(const char* op, cudaError_t code) {
  if (code == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();
  if (code == cudaErrorMemoryAllocation) throw OutOfMemoryError(str(op, ": CUDA: ", describe(code)));
  throw CudaError(str(op, ": CUDA: ", describe(code)));
}

void ignore_error(cudaError_t code) noexcept {
  if (code != cudaSuccess && code != cudaErrorCudartUnloading) (void)cudaGetLastError();
}

}  // namespace vox::cuda

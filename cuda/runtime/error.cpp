#include <voxgrad/core/check.h>
#include <voxgrad/cuda/runtime/error.h>

#include <algorithm>
#include <iterator>

namespace vox::cuda {

namespace {

/// Errors after which every CUDA call of this process returns the same error: those of which CUDA's header
/// says that the process must be terminated, and failures of memory and links. By number, because older
/// headers lack some names.
bool is_sticky(cudaError_t code) {
  constexpr int sticky[] = {214, 220, 226,                                     // ECC, NVLink, contained
                            700, 702, 710, 714, 715, 716, 717, 718, 719, 721,  // failures of kernels
                            810, 911};                                         // MPS, an external device
  return std::find(std::begin(sticky), std::end(sticky), static_cast<int>(code)) != std::end(sticky);
}

std::string version(int number) { return str(number / 1000, '.', number % 1000 / 10); }

/// What the error alone does not say.
std::string advice(cudaError_t code) {
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);  // stays 0 without a driver
  switch (code) {
    case cudaErrorInsufficientDriver:
      return describe_driver(driver, CUDART_VERSION / 1000 * 1000);  // of the same major version: new enough
    case cudaErrorUnsupportedPtxVersion:
      return describe_driver(driver, CUDART_VERSION);
    case cudaErrorNoKernelImageForDevice:
      return "voxgrad was built without code for this GPU (CMAKE_CUDA_ARCHITECTURES in docs/building.md)";
    default:
      return is_sticky(code)
                 ? "this process can no longer use the GPU and must end, because an earlier kernel, of "
                   "this op or of a previous one, or the hardware failed (CUDA_LAUNCH_BLOCKING=1 or "
                   "compute-sanitizer shows which kernel)"
                 : "";
  }
}

}  // namespace

std::string describe_driver(int driver, int needed) {
  const std::string need = str("voxgrad was built with CUDA ", version(CUDART_VERSION),
                               " and needs a driver for CUDA ", version(needed), " or newer");
  if (driver == 0) return "no NVIDIA driver was found; " + need;
  return str("the NVIDIA driver of this machine is for CUDA ", version(driver), "; ", need);
}

std::string describe(cudaError_t code) {
  const std::string more = advice(code);
  return str(cudaGetErrorName(code), " (", cudaGetErrorString(code), ")", more.empty() ? "" : "; ", more);
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

#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/guard.h>

#include <utility>

namespace vox::cuda::conv {

namespace {

// The kernel's largest block shows which machine code of the build a GPU was given.
constexpr int with_wgmma = 128;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__global__ void __launch_bounds__(with_wgmma) build_kernel() {}
#else
__global__ void __launch_bounds__(with_wgmma / 2) build_kernel() {}
#endif

/// Asks the driver, which does not create a context.
bool is_hopper(int device) {
  int major = 0, minor = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0;
}

/// For the current device. GPUs of one compute capability get the same machine code, so asking one is enough,
/// and the others need no context.
bool build_has_wgmma() {
  const OutsideCapture outside;
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, build_kernel) == cudaSuccess &&
         attributes.maxThreadsPerBlock == with_wgmma;
}

thread_local std::optional<bool> assumed;

}  // namespace

AssumeWgmma::AssumeWgmma(bool value) : previous_(std::exchange(assumed, value)) {}
AssumeWgmma::~AssumeWgmma() { assumed = previous_; }

bool has_wgmma() {
  if (assumed) return *assumed;
  static const bool on_all = [] {
    for (int i = 0; i < device_count(); ++i)
      if (!is_hopper(i)) return false;
    return device_count() > 0 && build_has_wgmma();
  }();
  return on_all;
}

}  // namespace vox::cuda::conv

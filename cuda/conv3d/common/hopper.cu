#include <voxgrad/core/check.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/guard.h>

#include <cstdlib>
#include <string_view>

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
  check_cuda("conv3d", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check_cuda("conv3d", cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

/// For the current device. GPUs of one compute capability get the same machine code, so asking one is enough,
/// and the others need no context.
bool build_has_wgmma() {
  const OutsideCapture outside;
  cudaFuncAttributes attributes{};
  check_cuda("conv3d", cudaFuncGetAttributes(&attributes, build_kernel));
  return attributes.maxThreadsPerBlock == with_wgmma;
}

}  // namespace

bool wgmma_allowed() {
  const char* const text = std::getenv("VOXGRAD_WGMMA");
  const std::string_view value = text ? text : "1";
  check<ValueError>(value == "0" || value == "1",
                    "conv3d: the environment variable VOXGRAD_WGMMA must be 0 or 1, got \"", value, "\"");
  return value == "1";
}

bool has_wgmma() {
  static const bool on_all = [] {
    if (!wgmma_allowed()) return false;
    for (int i = 0; i < device_count(); ++i)
      if (!is_hopper(i)) return false;
    return device_count() > 0 && build_has_wgmma();
  }();
  return on_all;
}

}  // namespace vox::cuda::conv

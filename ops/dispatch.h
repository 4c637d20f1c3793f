#pragma once

#include <cstddef>

#include <voxgrad/config.h>
#include <voxgrad/core/check.h>
#include <voxgrad/core/device.h>

/// `VOX_CUDA(&cuda::f)` is the kernel in a CUDA build, and a null pointer, without naming it, in any other.
#if VOXGRAD_HAS_CUDA
#define VOX_CUDA(kernel) kernel
#else
#define VOX_CUDA(kernel) nullptr
#endif

namespace vox {

/// One kernel per device, in a table beside the op that uses it:
///
///     constexpr ByDevice kernel{"matmul", &cpu::matmul, VOX_CUDA(&cuda::matmul)};
///     kernel.on(y.device())(a, b, y);
///
/// The contract of every kernel entry, on both devices: inputs are `const Tensor&`, outputs are allocated by
/// the caller, shapes, dtypes and devices are checked before; the kernel visits the dtype and writes every
/// element of its outputs. CUDA kernels take their stream once, from cuda::Launch.
template <class F>
struct ByDevice {
  const char* name;
  F* cpu;
  F* cuda;

  constexpr ByDevice(const char* op, F* cpu_kernel, F* cuda_kernel)
      : name(op), cpu(cpu_kernel), cuda(cuda_kernel) {}
  constexpr ByDevice(const char* op, F* cpu_kernel, std::nullptr_t)
      : name(op), cpu(cpu_kernel), cuda(nullptr) {}

  F& on(Device device) const {
    F* kernel = device.is_cpu() ? cpu : cuda;
    check<DeviceError>(kernel != nullptr, name, ": this build has no kernel for device ", device);
    return *kernel;
  }
};

}  // namespace vox

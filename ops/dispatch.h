#pragma once

#include <cstddef>
#include <utility>

#include <voxgrad/config.h>
#include <voxgrad/core/check.h>
#include <voxgrad/core/device.h>

/// `VOX_CUDA(&cuda::f)` is `&cuda::f` in a CUDA build; elsewhere it is null and does not need the name.
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
/// The contract of every kernel, on both devices: inputs are `const Tensor&`; the caller allocates the
/// outputs and checks shapes, dtypes and devices; the kernel dispatches on the dtype and writes every element
/// of its outputs. A CUDA kernel takes its stream once, from cuda::Launch. If a kernel cannot allocate its
/// working memory, the error names the table's op, or `function` if that is given.
template <class F>
struct ByDevice {
  const char* name;
  F* cpu;
  F* cuda;

  constexpr ByDevice(const char* op, F* cpu_kernel, F* cuda_kernel)
      : name(op), cpu(cpu_kernel), cuda(cuda_kernel) {}
  constexpr ByDevice(const char* op, F* cpu_kernel, std::nullptr_t)
      : name(op), cpu(cpu_kernel), cuda(nullptr) {}

  auto on(Device device, const char* function = nullptr) const {
    F* kernel = device.is_cpu() ? cpu : cuda;
    check<DeviceError>(kernel != nullptr, name, ": this build has no kernel for device ", device);
    return [kernel, function = function ? function : name]<class... Args>(Args&&... arguments) {
      in_the_name_of(function, [&] { kernel(std::forward<Args>(arguments)...); });
    };
  }
};

}  // namespace vox

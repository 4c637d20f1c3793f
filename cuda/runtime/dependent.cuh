#pragma once

#include <cuda_runtime.h>

#include <utility>

#include <voxgrad/cuda/runtime/launch.h>

// Kernels that begin before the one before them in the stream has ended ("programmatic dependent launch").
// sm_90 and later. PTX ISA, "griddepcontrol".

namespace vox::cuda {

namespace ptx {

/// The next kernel may begin as soon as all blocks have called this or ended. Before sm_90 it does nothing.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the kernel before has ended and its stores are visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace ptx

/// How to launch it: <<<blocks, threads, shared_bytes>>> and, if not 1, the blocks of a cluster.
struct DependentLaunch {
  dim3 blocks;
  int threads, shared_bytes;
  int cluster = 1;
};

/// Launches a kernel that calls wait_for_previous_kernel() before it touches memory that earlier kernels read
/// or write.
template <class... Parameters, class... Args>
void launch_dependent(const Launch& launch, const DependentLaunch& how, void (*kernel)(Parameters...),
                      Args&&... args) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(how.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = how.blocks;
  config.blockDim = static_cast<unsigned>(how.threads);
  config.dynamicSmemBytes = static_cast<size_t>(how.shared_bytes);
  config.stream = launch.stream();
  config.attrs = attributes;
  config.numAttrs = how.cluster > 1 ? 2 : 1;
  launch.check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace vox::cuda

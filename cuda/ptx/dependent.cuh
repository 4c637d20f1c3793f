#pragma once

// Kernels that begin before the one before them in the stream has ended, if they are launched so
// (cudaLaunchAttributeProgrammaticStreamSerialization). sm_90 and later. PTX ISA, "griddepcontrol".

namespace vox::cuda::ptx {

/// The next kernel may begin as soon as all blocks have called this or ended.
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Waits until the kernel before has ended and its stores are visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace vox::cuda::ptx

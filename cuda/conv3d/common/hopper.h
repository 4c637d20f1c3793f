#pragma once

#include <cuda_runtime_api.h>

#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/runtime/launch.h>

namespace vox::cuda::conv {

/// False if the environment variable VOXGRAD_WGMMA is 0, true if it is 1 or not set. Throws ValueError if it
/// is anything else.
bool wgmma_allowed();

/// Whether wgmma kernels can run here: they are allowed (asked once), every GPU of the machine has compute
/// capability 9.0, and this build has machine code for it (architecture 90a; its PTX for other GPUs leaves
/// their bodies empty).
bool has_wgmma();

/// What choices and plans count with here: GPUs without wgmma are all since_sm_80.
inline Machine this_machine() { return has_wgmma() ? h200 : since_sm_80; }

/// A property of the launch's device.
inline int attribute(const Launch& launch, cudaDeviceAttr which) {
  int device = 0, value = 0;
  launch.check(cudaGetDevice(&device));
  launch.check(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

/// The number of multiprocessors of the launch's device.
inline int multiprocessors(const Launch& launch) { return attribute(launch, cudaDevAttrMultiProcessorCount); }

/// The launch's device, as plans of Hopper's kernels see it.
inline Machine machine_of(const Launch& launch) {
  Machine machine = h200;
  machine.multiprocessors = multiprocessors(launch);
  return machine;
}

}  // namespace vox::cuda::conv

#pragma once

#include <cuda_runtime_api.h>

#include <voxgrad/cuda/launch.h>

namespace vox::cuda {

/// Of the device of the launch.
inline int multiprocessors(const Launch& launch) {
  int device = 0, count = 0;
  launch.check(cudaGetDevice(&device));
  launch.check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace vox::cuda

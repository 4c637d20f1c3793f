#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include <voxgrad/cuda/runtime/launch.h>

namespace vox::cuda::conv {

/// Whether wgmma kernels can run here: every GPU of the machine has compute capability 9.0, and this build
/// has machine code for it (architecture 90a; its PTX for other GPUs leaves their bodies empty).
bool has_wgmma();

/// For benchmarks and tests of the choice alone: while the guard lives, has_wgmma() is `value` on this
/// thread, on any machine. Kernels can then be asked what they take, and chosen, but those with wgmma cannot
/// run where it is missing. The thread keeps its choices (recent.h), so the guard must be there before the
/// first one.
class AssumeWgmma {
 public:
  explicit AssumeWgmma(bool value);
  ~AssumeWgmma();
  AssumeWgmma(const AssumeWgmma&) = delete;
  AssumeWgmma& operator=(const AssumeWgmma&) = delete;

 private:
  std::optional<bool> previous_;
};

/// The number of multiprocessors of the launch's device.
inline int multiprocessors(const Launch& launch) {
  int device = 0, count = 0;
  launch.check(cudaGetDevice(&device));
  launch.check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace vox::cuda::conv

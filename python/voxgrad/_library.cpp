#include <voxgrad/config.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/voxgrad.h>

#include "capi/errors.h"

// What python/voxgrad/_library.py asks of the library itself.

using namespace vox;

extern "C" {

/// "major.minor.patch"
const char* voxgrad_version() { return version(); }

/// 1 if this build has CUDA kernels.
int voxgrad_has_cuda() { return VOXGRAD_HAS_CUDA; }

/// Returns the unused memory of voxgrad's pool to the GPU.
VoxgradStatus voxgrad_empty_cache(int device) {
  return guarded([&] { cuda::empty_cache(Device::cuda(device)); });
}

/// Bytes that voxgrad uses on the GPU, and bytes that it holds there, unused memory of its pool included.
VoxgradStatus voxgrad_memory(int device, int64_t* in_use, int64_t* reserved) {
  return guarded([&] {
    const cuda::MemoryStats stats = cuda::memory_stats(Device::cuda(device));
    *in_use = stats.in_use;
    *reserved = stats.reserved;
  });
}
}

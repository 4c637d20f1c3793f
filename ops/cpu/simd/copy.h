#pragma once

#include <cstdint>

namespace vox::cpu::simd {

/// Copies bytes that do not overlap; `stream`: past the cache.
struct CopyKernels {
  void (*copy)(const char* from, char* to, int64_t bytes, bool stream);
};

namespace baseline {
extern const CopyKernels copy_kernels;
}
namespace v3 {
extern const CopyKernels copy_kernels;
}
namespace v4 {
extern const CopyKernels copy_kernels;
}

}  // namespace vox::cpu::simd

#pragma once

#include <cstdint>

namespace vox::cpu::simd {

/// Cell i of an axis is a row at x + i * pitch.
template <class T>
struct CellRows {
  const T* x;
  int64_t pitch;
};

}  // namespace vox::cpu::simd

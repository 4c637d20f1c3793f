#pragma once

#include <cstdint>

namespace vox::cpu::simd {

/// to[r * pitch + c] = from[r + c * column_stride], where memory is transposed: what is near in it is far in
/// the result. One kernel per size of element; strides in elements.
template <class T>
using Transpose = void (*)(const T* from, int64_t column_stride, T* to, int64_t pitch, int64_t rows,
                           int64_t columns);

struct TransposeKernels {
  Transpose<uint8_t> bytes1;
  Transpose<uint16_t> bytes2;
  Transpose<uint32_t> bytes4;
  Transpose<uint64_t> bytes8;
};

namespace baseline {
extern const TransposeKernels transpose_kernels;
}
namespace v3 {
extern const TransposeKernels transpose_kernels;
}
namespace v4 {
extern const TransposeKernels transpose_kernels;
}

}  // namespace vox::cpu::simd

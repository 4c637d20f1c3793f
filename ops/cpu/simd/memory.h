#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>

namespace vox::cpu::simd {

/// Copies bytes that do not overlap; `stream` writes past the cache.
struct CopyKernels {
  void (*copy)(const char* from, char* to, int64_t bytes, bool stream);
};

VOX_DECLARE_BY_ISA(CopyKernels, copy_kernels);

/// to[i * to_step + r] = from[r * from_step + i] for r < rows, i < columns. One kernel per size of element;
/// strides in elements.
template <class T>
using Transpose = void (*)(const T* from, int64_t from_step, int64_t rows, int64_t columns, T* to,
                           int64_t to_step);

struct TransposeKernels {
  Transpose<uint8_t> bytes1;
  Transpose<uint16_t> bytes2;
  Transpose<uint32_t> bytes4;
  Transpose<uint64_t> bytes8;
};

VOX_DECLARE_BY_ISA(TransposeKernels, transpose_kernels);

/// Conversions of float16's bits, as core/half.h defines them.
struct HalfKernels {
  void (*widen)(const uint16_t* from, float* to, int64_t n);
  void (*narrow)(const float* from, uint16_t* to, int64_t n);
};

VOX_DECLARE_BY_ISA(HalfKernels, half_kernels);

}  // namespace vox::cpu::simd

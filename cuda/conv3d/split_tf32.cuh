#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/mma.cuh>

// An f32 number as a sum of two TF32 numbers, x = high + low, to within 2^-22 of it: what the kernels of
// `highest` multiply.

namespace vox::cuda {

/// Whether x has no such parts: rounded to TF32, it is infinite or NaN.
__device__ __forceinline__ bool beyond_tf32(float x) { return !(fabsf(x) < __uint_as_float(0x7f7ff000)); }

__device__ __forceinline__ uint32_t tf32_high(float x) { return ptx::to_tf32(x); }
__device__ __forceinline__ uint32_t tf32_low(float x, uint32_t high) {
  return ptx::to_tf32(x - __uint_as_float(high));
}

/// Whether there are such parts, seen from tf32_high(x), where that is at hand.
__device__ __forceinline__ bool has_tf32_low(uint32_t high) { return (high & 0x7f800000u) != 0x7f800000u; }

/// tf32_high of a finite x, by its bits: two instructions where the conversion, for the sake of Inf and NaN,
/// takes four. For kernels in which that shows, and which find Inf and NaN by other means.
__device__ __forceinline__ uint32_t tf32_high_of_finite(uint32_t x) { return (x + 0x1000) & ~0x1fffu; }

}  // namespace vox::cuda

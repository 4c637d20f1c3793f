#pragma once

#include <voxgrad/core/dtype.h>

namespace vox::cuda {

/// exp(x). If `half`, the result is rounded to 16 bits next. Then the instruction ex2 is exact enough: its
/// relative error is below 2^-17.
template <bool half, class T>
__device__ T exponential(T x) {
  if constexpr (half)
    return __expf(x);
  else
    return ::exp(x);
}

/// 2^x to within 2 units in the last place; 0 below 2^-126.
__device__ __forceinline__ float flushed_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// exp(x) for a result in T. If T has 16 bits, numbers below 2^-126 become 0, which saves three instructions.
template <class T>
__device__ opmath_t<T> flushed_exponential(opmath_t<T> x) {
  if constexpr (is_16_bit_v<T>)
    return flushed_exp2(x * 1.44269504f);
  else
    return ::exp(x);
}

}  // namespace vox::cuda

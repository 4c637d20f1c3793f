#pragma once

// What the tensor cores are given for a number: the operands of the wgmma kernels as policies.

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/conv3d/split_tf32.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::flat {

/// max(a, |x|) of a >= 0; NaN if one of them is.
__device__ __forceinline__ float larger_size(float a, float x) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(fabsf(x)));
  return most;
}

/// f32 rounded to TF32.
struct Tf32 {
  static constexpr ptx::Operand operand = ptx::Operand::tf32;
  using Element = uint32_t;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return ptx::to_tf32(x); }
};

/// Rounded to 16 bits, or stored so.
struct Bf16 {
  static constexpr ptx::Operand operand = ptx::Operand::bf16;
  using Element = bfloat16;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return bfloat16(x); }
};
struct F16 {
  static constexpr ptx::Operand operand = ptx::Operand::f16;
  using Element = float16;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return float16(x); }
};

/// f32 as a sum of two TF32 numbers, high and low. Of their four products the last is below the rounding of
/// f32 and left out. The tensor cores truncate when they add, so their sums move to f32 registers before they
/// are long.
struct Tf32x3 {
  static constexpr ptx::Operand operand = ptx::Operand::tf32;
  using Element = uint32_t;
  static constexpr int parts = 2;
  static __device__ __forceinline__ Element part(float x, int i) {
    const uint32_t high = tf32_high(x);
    return i == 0 ? high : tf32_low(x, high);
  }
  /// Whether these values have such parts.
  template <int n>
  static __device__ __forceinline__ bool holds(const float (&x)[n]) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < n; ++i) all &= has_tf32_low(tf32_high(x[i]));
    return all;
  }
};

/// f32 as a sum of two f16 numbers, once scaled by a power of two: see implicit_gemm_wgmma_f16x3.cuh.
struct F16x3 {
  static constexpr ptx::Operand operand = ptx::Operand::f16;
  using Element = float16;
  static constexpr int parts = 2;

  /// The power of two that brings numbers up to `most` (finite) below 2^15, and to 2^14 at least if there is
  /// one.
  static __device__ __forceinline__ float scale_for(float most) {
    return __uint_as_float(min(268 - (__float_as_uint(most) >> 23), 253u) << 23);
  }
  /// The same for planes, which are added up without a pause where they have one scale: the one before if
  /// that is nearly as good, and else one of an even exponent, so that all soon agree on data of one kind.
  static __device__ __forceinline__ float scale_for(float most, float before) {
    if (most == 0 || (most * before < 0x1p15f && most * before >= 0x1p11f)) return before;
    return __uint_as_float(((__float_as_uint(scale_for(most)) >> 23) - 1 | 1) << 23);
  }
  /// 1 / scale, of such a power of two.
  static __device__ __forceinline__ float inverse(float scale) {
    return __uint_as_float((254u << 23) - __float_as_uint(scale));
  }
  /// Whether sums of values up to `most` (NaN if there is one), times weights below 2^15, are normal f32
  /// numbers: both those of the largest, and those of the smallest that have all their bits.
  static __device__ __forceinline__ bool range_holds(float most) {
    return most == 0 || (most >= 0x1p-80f && most < 0x1p96f);
  }

  /// Of the input: high, and low times 2^11.
  static __device__ __forceinline__ Element part(float scaled, int i) {
    const float16 high(scaled);
    return i == 0 ? high : float16((scaled - static_cast<float>(high)) * 0x1p11f);
  }
  /// Of the weights: low, high / 2^11, and high.
  static __device__ __forceinline__ Element weight_part(float scaled, int i) {
    const float16 high(scaled);
    if (i == 2) return high;
    return float16(i == 1 ? static_cast<float>(high) * 0x1p-11f : scaled - static_cast<float>(high));
  }
  /// From this size on the parts of a scaled number have all its bits.
  static constexpr float full = 0x1p-14f, full_weight = 0x1p-3f;
};

}  // namespace vox::cuda::flat

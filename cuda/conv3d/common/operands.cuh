#pragma once

// What the tensor cores multiply in place of an f32 or 16-bit number: one policy for each kind of operand.
//
//   Tf32     f32 rounded to TF32                    one product
//   Bf16     bf16, or f32 rounded to it             one product
//   F16      f16                                    one product
//   F16OfF32 f32, scaled, rounded to f16            one product, as precise as TF32 at twice its rate
//   Tf32x3   f32 as a sum of two TF32 numbers       three products, as accurate as f32 arithmetic
//   F16x3, F16Pair
//            f32, scaled, as a sum of two f16 ones  three products at twice the rate, likewise
//
// Note [Truncating sums]
//   Tensor cores add products to an f32 sum, but truncate the result where f32 arithmetic rounds it. On data
//   of one sign all errors have the same direction: measured, 3.3e-8 of the sum for each tap of 8 channels.
//   f32 arithmetic itself has an error of about 1.6e-8 times the root of the number of products. So kernels
//   that must be as accurate as f32 (Tf32x3, F16x3, F16Pair) add these sums to f32 registers after a few taps
//   and start new sums at zero. With operands rounded to TF32 or 16 bits, rounding causes larger errors than
//   truncation, so sums stay in the tensor core's accumulators.
//
// Note [Values that are not finite]
//   Tensor-core kernels multiply zeros in place of cells outside the input, and of channels that do not
//   exist. An Inf or NaN of the input makes exactly those outputs Inf or NaN that it touches. An Inf or NaN
//   of the weights also makes NaN of outputs whose tap with it falls outside the input. This holds for all
//   kernels of rolling, strided, gather, dense, windows and mma that round their operands. Kernels that
//   split operands set the flag `failed` for such values (Note [Redo] in call.h). In weight_grad small and
//   big take these roles: an Inf or NaN of small also makes NaN of the weights whose tap falls outside big
//   for its cell.

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <cstdint>
#include <type_traits>

namespace vox::cuda::conv {

/// A number of a tensor as an operand; one that is an operand keeps its bits, of a NaN too.
template <class Operand, class Storage>
__device__ __forceinline__ typename Operand::Element element_of(Storage x) {
  if constexpr (std::is_same_v<Storage, typename Operand::Element>)
    return x;
  else
    return Operand::part(static_cast<float>(x));
}

// ---- TF32 and its parts -----------------------------------------------------------------------------------

// x = high + low, both TF32 numbers, to within 2^-22 of x.

/// Whether x has no such parts: rounded to TF32, it is infinite or NaN.
__device__ __forceinline__ bool beyond_tf32(float x) { return !(fabsf(x) < __uint_as_float(0x7f7ff000)); }

__device__ __forceinline__ uint32_t tf32_high(float x) { return ptx::to_tf32(x); }
__device__ __forceinline__ uint32_t tf32_low(float x, uint32_t high) {
  return ptx::to_tf32(x - __uint_as_float(high));
}

/// tf32_high of a finite x: two instructions on its bits instead of the four that a conversion with Inf and
/// NaN takes. The caller has to find Inf and NaN by other means.
__device__ __forceinline__ uint32_t tf32_high_of_finite(uint32_t x) { return (x + 0x1000) & ~0x1fffu; }

/// Rounded to TF32 by one multiplication. Tensor cores ignore the bits below TF32's mantissa, so the part
/// that the multiplication adds decides whether a number is rounded up: 0.35 of the last bit for mantissas
/// near 1, 0.69 for those near 2 (rounding to nearest adds 0.5). The mean error is zero, its variance 12 %
/// larger than that of rounding to nearest. TF32 numbers, NaN and Inf keep their values.
__device__ __forceinline__ uint32_t rounded_to_tf32(float x) {
  return __float_as_uint(x * (1 + 0.3466f / 1024));
}

// ---- Sizes ------------------------------------------------------------------------------------------------

/// |x| as the bits of an f32, whose order is that of integers.
__device__ __forceinline__ unsigned size_bits(float x) { return __float_as_uint(x) & 0x7fffffff; }

/// most = max(most, the size of x) if x is finite.
__device__ __forceinline__ void add_finite(unsigned& most, float x) {
  if (const unsigned size = size_bits(x); size < 0x7f800000) most = max(most, size);
}

// ---- Policies ---------------------------------------------------------------------------------------------

/// max(a, |x|) for a >= 0; NaN if either is.
__device__ __forceinline__ float larger_size(float a, float x) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(fabsf(x)));
  return most;
}

/// One number, as the bits of a TF32 number or as bf16 or f16.
template <ptx::Operand operand_, class Element_>
struct Rounded {
  static constexpr ptx::Operand operand = operand_;
  using Element = Element_;
  static constexpr int parts = 1, weight_parts = 1;
  static __device__ __forceinline__ Element part(float x) {
    if constexpr (operand == ptx::Operand::tf32)
      return ptx::to_tf32(x);
    else
      return Element(x);
  }
  static __device__ __forceinline__ Element weight_part(float x, int) { return part(x); }
};
struct Tf32 : Rounded<ptx::Operand::tf32, uint32_t> {};
struct Bf16 : Rounded<ptx::Operand::bf16, bfloat16> {};
struct F16 : Rounded<ptx::Operand::f16, float16> {};

/// f32 as a sum of two TF32 numbers, high and low. Three of their four products are computed; low * low is
/// below the rounding of f32. See Note [Truncating sums].
struct Tf32x3 {
  using Element = uint32_t;
  static constexpr int parts = 2, weight_parts = 2;
  static __device__ __forceinline__ Element weight_part(float x, int i) {
    const uint32_t high = tf32_high(x);
    return i == 0 ? high : tf32_low(x, high);
  }
};

/// f32, scaled by a power of two, as a sum of two f16 numbers: see strided/f16x3.cuh, and bands.cuh.
struct F16x3 {
  static constexpr ptx::Operand operand = ptx::Operand::f16;
  using Element = float16;
  static constexpr int parts = 2, weight_parts = 3;

  /// The power of two that scales numbers up to `most` (finite) below 2^15, and up to 2^14 at least if
  /// possible.
  static __device__ __forceinline__ float scale_for(float most) {
    return __uint_as_float(min(268 - (__float_as_uint(most) >> 23), 253u) << 23);
  }
  /// The same for stages. Those of one scale are added up without a pause, so the scale of the stage before
  /// is kept if it is nearly as good. Else the new one has an even exponent, so that scales soon agree on
  /// data of one kind.
  static __device__ __forceinline__ float scale_for(float most, float before) {
    if (most == 0 || (most * before < 0x1p15f && most * before >= 0x1p11f)) return before;
    return __uint_as_float(((__float_as_uint(scale_for(most)) >> 23) - 1 | 1) << 23);
  }
  /// 1 / scale, for such a power of two.
  static __device__ __forceinline__ float inverse(float scale) {
    return __uint_as_float((254u << 23) - __float_as_uint(scale));
  }
  /// Whether sums of values up to `most` (NaN if there is one), times weights below 2^15, are normal f32
  /// numbers: those of the largest values, and those of the smallest that have all their bits.
  static __device__ __forceinline__ bool range_holds(float most) {
    return most == 0 || (most >= 0x1p-80f && most < 0x1p96f);
  }

  /// Part i of an input value: high, and low times 2^11.
  static __device__ __forceinline__ Element part(float scaled, int i) {
    const float16 high(scaled);
    return i == 0 ? high : float16((scaled - static_cast<float>(high)) * 0x1p11f);
  }
  /// Part i of a weight: low, high / 2^11, and high.
  static __device__ __forceinline__ Element weight_part(float scaled, int i) {
    const float16 high(scaled);
    if (i == 2) return high;
    return float16(i == 1 ? static_cast<float>(high) * 0x1p-11f : scaled - static_cast<float>(high));
  }
  /// From this size on the parts of a scaled number have all its bits.
  static constexpr float full = 0x1p-14f, full_weight = 0x1p-3f;
};

/// f32, scaled by a power of two, rounded to f16, which has as many bits as TF32: see bands.cuh. A weight
/// below 2^-29 of the largest of its output channel has fewer, and an error of 2^-40 of that one. Inf and NaN
/// stay so.
struct F16OfF32 : F16 {
  static constexpr float full_weight = 0;
};

/// The same as F16x3 for kernels that add up the products with a low part apart, times 2^-11: so weights have
/// the parts of input values, and their range.
struct F16Pair {
  static constexpr ptx::Operand operand = ptx::Operand::f16;
  using Element = float16;
  static constexpr int parts = 2, weight_parts = 2;
  static __device__ __forceinline__ Element weight_part(float scaled, int i) {
    return F16x3::part(scaled, i);
  }
  static constexpr float full_weight = F16x3::full;
};

}  // namespace vox::cuda::conv

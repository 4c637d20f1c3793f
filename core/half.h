#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <voxgrad/core/host_device.h>

// Note [16-bit floating types]
//
// bfloat16 is the upper half of a float (8 bits of exponent, 7 of fraction); float16 is IEEE 754 binary16 (5
// and 10). Both only store numbers. They convert to float implicitly, so arithmetic and comparisons are
// float's. The conversion back is explicit, bfloat16(x), and rounds once, to nearest, ties to even. A number
// too large becomes infinity, one below half of the smallest denormal becomes 0, and every NaN becomes
// 0x7fff. The bits are the same on the host, which converts in software, and on the GPU, which has
// instructions.

namespace vox {

struct bfloat16;
struct float16;

/// Whether T is bfloat16 or float16.
template <class T>
inline constexpr bool is_16_bit_v =
    std::is_same_v<std::remove_cv_t<T>, bfloat16> || std::is_same_v<std::remove_cv_t<T>, float16>;

namespace detail {

template <class A>
concept Number = std::is_arithmetic_v<A> || is_16_bit_v<A>;

/// A float that rounds to the same 16-bit number as x does. If no float equals x, the nearest float may be a
/// tie of the 16-bit type, and then a second rounding would go wrong. So the result is the neighbour of x
/// with an odd last bit, which is never a tie (round to odd: Boldo & Melquiond, IEEE Trans. Computers 57(4),
/// 2008).
template <Number A>
VOX_HOST_DEVICE constexpr float round_to_odd(A x) {
  if constexpr (std::is_same_v<A, float> || is_16_bit_v<A>) {
    return x;
  } else if constexpr (std::is_integral_v<A> && sizeof(A) == 8) {
    // Beyond double's 53 bits, the lowest 12 bits are replaced by one that says whether any of them is set.
    const bool exact = x < A(int64_t{1} << 53) && (std::is_unsigned_v<A> || x > A(-(int64_t{1} << 53)));
    if (!exact) x = static_cast<A>((x & ~A(0xfff)) | ((x & A(0xfff)) != 0 ? A(0x800) : A(0)));
    return round_to_odd(static_cast<double>(x));
  } else if constexpr (std::is_integral_v<A>) {
    return round_to_odd(static_cast<double>(x));
  } else {
    const double wide = static_cast<double>(x);
    if (wide >= 0x1p128) return std::numeric_limits<float>::infinity();
    if (wide <= -0x1p128) return -std::numeric_limits<float>::infinity();
    const float nearest = static_cast<float>(wide);
    const double back = nearest;
    if (back == wide || wide != wide) return nearest;
    uint32_t bits = std::bit_cast<uint32_t>(nearest);
    if (wide > 0 ? back > wide : back < wide) --bits;  // towards 0
    return std::bit_cast<float>(bits | 1);
  }
}

VOX_HOST_DEVICE constexpr uint16_t bfloat16_bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >>
                               16);  // a carry into the exponent gives the right number
}

VOX_HOST_DEVICE constexpr uint16_t float16_bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 16 & 0x8000;
  // Below 2^-14: a multiple of 2^-24, as the floats from 0.5 to 1 are. Below 2^16: from a bias of 127 to one
  // of 15, and 13 bits less. Both are computed before the choice, so that a loop becomes vector code.
  const uint32_t small = magnitude < 0x38800000 ? magnitude : 0x38800000;
  const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(small) + 0.5f) - 0x3f000000;
  const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const uint32_t finite = magnitude < 0x38800000 ? denormal : normal;
  const uint32_t rounded = sign | (magnitude < 0x47800000 ? finite : 0x7c00);  // 0x7c00: infinity
  return static_cast<uint16_t>(magnitude > 0x7f800000 ? 0x7fff : rounded);
}

VOX_HOST_DEVICE constexpr float float16_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  const float denormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  const uint32_t normal = (magnitude << 13) + 0x38000000;    // from a bias of 15 to one of 127
  const uint32_t not_finite = magnitude << 13 | 0x7f800000;  // infinity and NaN
  const uint32_t large = magnitude < 0x7c00 ? normal : not_finite;
  return std::bit_cast<float>(sign | (magnitude < 0x400 ? std::bit_cast<uint32_t>(denormal) : large));
}

#ifdef __CUDA_ARCH__
__device__ inline uint16_t float16_bits_on_gpu(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ inline float float16_value_on_gpu(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
#if __CUDA_ARCH__ >= 800
__device__ inline uint16_t bfloat16_bits_on_gpu(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#else
__device__ inline uint16_t bfloat16_bits_on_gpu(float x) { return bfloat16_bits(x); }
#endif
#endif

}  // namespace detail

/// See Note [16-bit floating types]. Numbers up to 3.39e38; 8 significant bits.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  template <detail::Number A>
  VOX_HOST_DEVICE constexpr explicit bfloat16(A x) : bits(rounded(detail::round_to_odd(x))) {}
  VOX_HOST_DEVICE static constexpr bfloat16 from_bits(uint16_t bits) {
    bfloat16 x{};
    x.bits = bits;
    return x;
  }
  VOX_HOST_DEVICE constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

 private:
  VOX_HOST_DEVICE static constexpr uint16_t rounded(float x) {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) return detail::bfloat16_bits_on_gpu(x);
#endif
    return detail::bfloat16_bits(x);
  }
};

/// See Note [16-bit floating types]. Numbers up to 65504, the smallest 2^-24; 11 significant bits.
struct float16 {
  uint16_t bits;

  float16() = default;
  template <detail::Number A>
  VOX_HOST_DEVICE constexpr explicit float16(A x) : bits(rounded(detail::round_to_odd(x))) {}
  VOX_HOST_DEVICE static constexpr float16 from_bits(uint16_t bits) {
    float16 x{};
    x.bits = bits;
    return x;
  }
  VOX_HOST_DEVICE constexpr operator float() const {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) return detail::float16_value_on_gpu(bits);
#endif
    return detail::float16_value(bits);
  }

 private:
  VOX_HOST_DEVICE static constexpr uint16_t rounded(float x) {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) return detail::float16_bits_on_gpu(x);
#endif
    return detail::float16_bits(x);
  }
};

/// The type that kernels compute in: float for the 16-bit types, and T itself for all others.
template <class T>
using opmath_t = std::conditional_t<is_16_bit_v<T>, float, T>;

namespace detail {

/// The members of std::numeric_limits that both types share.
struct HalfLimits {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
  static constexpr bool has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = false;
  static constexpr bool is_bounded = true, is_modulo = false, is_iec559 = false, traps = false;
  static constexpr int radix = 2;
};

}  // namespace detail
}  // namespace vox

template <>
struct std::numeric_limits<vox::bfloat16> : vox::detail::HalfLimits {
  using T = vox::bfloat16;
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
  static constexpr int min_exponent = -125, max_exponent = 128, min_exponent10 = -37, max_exponent10 = 38;
  static constexpr T min() noexcept { return T::from_bits(0x0080); }
  static constexpr T max() noexcept { return T::from_bits(0x7f7f); }
  static constexpr T lowest() noexcept { return T::from_bits(0xff7f); }
  static constexpr T epsilon() noexcept { return T(0x1p-7f); }
  static constexpr T denorm_min() noexcept { return T::from_bits(1); }
  static constexpr T infinity() noexcept { return T::from_bits(0x7f80); }
  static constexpr T quiet_NaN() noexcept { return T::from_bits(0x7fff); }
};

template <>
struct std::numeric_limits<vox::float16> : vox::detail::HalfLimits {
  using T = vox::float16;
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, max_exponent = 16, min_exponent10 = -4, max_exponent10 = 4;
  static constexpr T min() noexcept { return T::from_bits(0x0400); }
  static constexpr T max() noexcept { return T::from_bits(0x7bff); }
  static constexpr T lowest() noexcept { return T::from_bits(0xfbff); }
  static constexpr T epsilon() noexcept { return T(0x1p-10f); }
  static constexpr T denorm_min() noexcept { return T::from_bits(1); }
  static constexpr T infinity() noexcept { return T::from_bits(0x7c00); }
  static constexpr T quiet_NaN() noexcept { return T::from_bits(0x7fff); }
};

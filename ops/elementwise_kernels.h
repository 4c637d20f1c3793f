#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <voxgrad/core/host_device.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise_ops.h>

// What the elementwise ops ask of a device. All tensors of a call have the shape of the output (broadcast
// operands have stride 0) and any strides; the output does not overlap itself, and an input is either the
// output itself, element for element, or does not overlap it.
//
// A number operand: an input of one repeated element that lies in host memory whatever the output's device,
// see number() in ops/broadcast.h. CUDA kernels take its value as an argument.
//
// bf16 and f16: unary and binary compute in f32 and round once; a number operand of binary is f32 then.

namespace vox {

namespace cpu {
/// y = op(x). leaky_relu takes its slope, clamp its bounds from p and q. Integers (neg, abs, sign, relu,
/// clamp) wrap around.
void unary(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q);
/// y = op(a, b); add_scaled is a + p * b. Integers wrap around.
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p);
/// y = op(a, b), y bool.
void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y);
/// y = condition ? a : b.
void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y);
/// target = source, converted by detail::convert where the dtypes differ.
void copy(const Tensor& source, const Tensor& target);
void fill(const Tensor& target, Scalar value);
}  // namespace cpu

namespace cuda {
void unary(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q);
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p);
void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y);
void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y);
void copy(const Tensor& source, const Tensor& target);
void fill(const Tensor& target, Scalar value);
}  // namespace cuda

namespace detail {

inline constexpr ByDevice unary_kernel{"unary", &cpu::unary, VOX_CUDA(&cuda::unary)};
inline constexpr ByDevice binary_kernel{"binary", &cpu::binary, VOX_CUDA(&cuda::binary)};
inline constexpr ByDevice compare_kernel{"compare", &cpu::compare, VOX_CUDA(&cuda::compare)};
inline constexpr ByDevice where_kernel{"where", &cpu::where, VOX_CUDA(&cuda::where)};
inline constexpr ByDevice copy_kernel{"copy", &cpu::copy, VOX_CUDA(&cuda::copy)};
inline constexpr ByDevice fill_kernel{"fill", &cpu::fill, VOX_CUDA(&cuda::fill)};

/// Conversion between element types, defined for every value: a number becomes true unless it is 0; a real
/// number loses its fraction and is limited to the range of the integer type, NaN becoming 0; an integer
/// keeps its low bits.
template <class To, class From>
VOX_HOST_DEVICE To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && is_16_bit_v<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // Both limits are powers of two or small, so exact in From; above, the comparison must not be rounded.
    constexpr From below = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From above = sizeof(To) == 8 ? static_cast<From>(0x1p63) : static_cast<From>(256);
    if (x >= above) return std::numeric_limits<To>::max();
    return x > below ? static_cast<To>(x) : x <= below ? std::numeric_limits<To>::min() : To(0);
  } else {
    return static_cast<To>(x);
  }
}

/// A C++ number as an element; check_scalar() has seen that it fits.
template <class T>
T element(Scalar value) {
  return value.is_integer() && std::is_integral_v<T> ? convert<T>(value.as_integer())
                                                     : convert<T>(value.as_real());
}

}  // namespace detail
}  // namespace vox

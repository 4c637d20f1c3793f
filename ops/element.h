#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <voxgrad/core/host_device.h>
#include <voxgrad/core/tensor.h>

// Elements of a tensor: conversions between their types, and from C++ numbers.

namespace vox::detail {

/// Conversion between element types, defined for every value. As bool, everything except 0 is true. A
/// floating number cast to an integer loses its fraction and is limited to the type's range, and NaN becomes
/// 0. An integer keeps its low bits.
template <class To, class From>
VOX_HOST_DEVICE To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && is_16_bit_v<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // Both limits are exact in From. `above` is the largest To plus 1, because 2^63 - 1 is not exact.
    constexpr From below = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From above = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From(2);
    if (x >= above) return std::numeric_limits<To>::max();
    return x > below ? static_cast<To>(x) : x <= below ? std::numeric_limits<To>::min() : To(0);
  } else {
    return static_cast<To>(x);
  }
}

/// A C++ number as an element. check_scalar() has checked that it fits.
template <class T>
T element(Scalar value) {
  return value.is_integer() && std::is_integral_v<T> ? convert<T>(value.as_integer())
                                                     : convert<T>(value.as_real());
}

}  // namespace vox::detail

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <voxgrad/core/dtype.h>
#include <voxgrad/core/host_device.h>

namespace vox::detail {

/// The number of bits that sort_key() of a T may have.
template <class T>
inline constexpr int sort_key_bits = std::is_same_v<T, bool> ? 1
                                     : is_16_bit_v<T>        ? 32
                                                             : static_cast<int>(8 * sizeof(T));

/// An unsigned number for each x, of the same order. -0 equals 0, and every NaN is the largest number.
template <class T>
VOX_HOST_DEVICE uint64_t sort_key(T x) {
  if constexpr (is_16_bit_v<T>) {
    return sort_key(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);
    if (x != x) return static_cast<Bits>(~Bits{0});
    if (x == 0) return sign;
    Bits bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<Bits>(bits & sign ? ~bits : bits | sign);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
  } else {
    return static_cast<uint64_t>(x);
  }
}

/// The same with the order reversed.
template <class T>
VOX_HOST_DEVICE uint64_t sort_key(T x, bool descending) {
  constexpr uint64_t all = ~uint64_t{0} >> (64 - sort_key_bits<T>);
  return descending ? all - sort_key(x) : sort_key(x);
}

}  // namespace vox::detail

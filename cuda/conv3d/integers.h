#pragma once

#include <cstdint>
#include <type_traits>

// What plans reckon with.

namespace vox::cuda {

/// a / b, rounded up, of a >= 0 and b >= 1.
template <class A, class B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  return static_cast<std::common_type_t<A, B>>((int64_t{a} + b - 1) / b);
}

/// For what has been checked to fit, or is small.
constexpr int narrow(int64_t i) { return static_cast<int>(i); }

}  // namespace vox::cuda

#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

// Types of arguments that refuse what C++ would convert without a word. var(x, {2}, true) would have a
// correction of 1 and keep no dimension, sum(x, 1, 2) would sum over dimension 1 alone, and
// InstanceNorm3d({8, true}) would have an eps of 1. None of them compiles. Scalar and Element, the numbers
// beside a tensor, are in core/tensor.h.

namespace vox {

namespace detail {
/// An integer that is a size, a dimension or an index; a bool is none.
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;

/// Whether a From may be given where a To is meant.
template <class From, class To>
inline constexpr bool is_argument =
    std::is_same_v<To, bool>
        ? std::is_same_v<From, bool>
        : std::is_convertible_v<From, To> && !std::is_same_v<From, bool> &&
              (std::is_integral_v<From> || std::is_enum_v<From> || !std::is_same_v<To, int64_t>);

template <class T>
class Argument {
 public:
  template <class From>
  requires is_argument<From, T>
  constexpr Argument(From value) : value_(static_cast<T>(value)) {}
  constexpr operator T() const { return value_; }

 private:
  T value_;
};

/// The first member of every struct of options. Without names each value would go to the next option.
struct ByName {
  constexpr explicit ByName() = default;
  template <class T>
  constexpr ByName(const T&) {
    static_assert(sizeof(T) == 0, "options are given by name: {.kernel_size = 3}, not {3}");
  }
};
}  // namespace detail

using Int = detail::Argument<int64_t>;  ///< an integer: no bool, no fraction
using Real = detail::Argument<double>;  ///< a number: no bool
using Flag = detail::Argument<bool>;    ///< true or false: no number

}  // namespace vox

#pragma once

#include <cstdint>
#include <ostream>
#include <type_traits>
#include <utility>

#include <voxgrad/core/check.h>

namespace vox {

/// Element types. They never mix silently: an op on two dtypes is an error that names both.
enum class DType : uint8_t { f32, f64, i64, u8, boolean };
using enum DType;

constexpr const char* to_string(DType dtype) {
  switch (dtype) {
    case f32:
      return "f32";
    case f64:
      return "f64";
    case i64:
      return "i64";
    case u8:
      return "u8";
    case boolean:
      return "bool";
  }
  return "?";
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

/// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case f32:
      return 4;
    case f64:
    case i64:
      return 8;
    case u8:
    case boolean:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) { return dtype == f32 || dtype == f64; }

/// The DType of a C++ element type: float, double, int64_t, uint8_t or bool.
template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return f32;
  else if constexpr (std::is_same_v<U, double>)
    return f64;
  else if constexpr (std::is_same_v<U, int64_t>)
    return i64;
  else if constexpr (std::is_same_v<U, uint8_t>)
    return u8;
  else {
    static_assert(std::is_same_v<U, bool>, "voxgrad tensors hold float, double, int64_t, uint8_t or bool");
    return boolean;
  }
}

/// Calls `f(T{})` with the C++ type of `dtype`: how a launcher turns a run-time dtype into a template.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case f32:
      return f(float{});
    case f64:
      return f(double{});
    case i64:
      return f(int64_t{});
    case u8:
      return f(uint8_t{});
    case boolean:
      return f(bool{});
  }
  throw DTypeError("visit_dtype: corrupt dtype value");
}

/// The same for the floating dtypes; `function` names the caller in the error for all others.
template <class F>
decltype(auto) visit_floating(const char* function, DType dtype, F&& f) {
  if (dtype == f32) return f(float{});
  check<DTypeError>(dtype == f64, function, ": needs a floating dtype, got ", dtype,
                    "; allowed are f32 and f64 (use to(dtype))");
  return f(double{});
}

}  // namespace vox

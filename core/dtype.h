#pragma once

#include <cstdint>
#include <ostream>
#include <type_traits>
#include <utility>

#include <voxgrad/core/check.h>
#include <voxgrad/core/half.h>

namespace vox {

/// Element types. They never mix silently: an op on two dtypes is an error that names both. bf16 and f16 only
/// store numbers: ops compute in f32 and round their result once (Note [16-bit floating types]).
enum class DType : uint8_t { f32, f64, i64, u8, boolean, bf16, f16 };
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
    case bf16:
      return "bf16";
    case f16:
      return "f16";
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
    case bf16:
    case f16:
      return 2;
  }
  return 0;
}

constexpr bool is_16_bit(DType dtype) { return dtype == bf16 || dtype == f16; }
constexpr bool is_floating(DType dtype) { return dtype == f32 || dtype == f64 || is_16_bit(dtype); }

/// The dtype that ops on `dtype` compute in: f32 for bf16 and f16, and itself for all others.
constexpr DType opmath(DType dtype) { return is_16_bit(dtype) ? f32 : dtype; }

/// The DType of a C++ element type: float, double, int64_t, uint8_t, bool, bfloat16 or float16.
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
  else if constexpr (std::is_same_v<U, bfloat16>)
    return bf16;
  else if constexpr (std::is_same_v<U, float16>)
    return f16;
  else {
    static_assert(std::is_same_v<U, bool>,
                  "voxgrad tensors hold float, double, int64_t, uint8_t, bool, bfloat16 or float16");
    return boolean;
  }
}

/// Whether T is one of the floating element types, of 16 bits or more.
template <class T>
inline constexpr bool is_floating_v = std::is_floating_point_v<T> || is_16_bit_v<T>;

/// Calls `f(T{})` with the C++ type that ops on `dtype` compute in: float for bf16 and f16 too.
template <class F>
decltype(auto) visit_opmath(DType dtype, F&& f) {
  switch (opmath(dtype)) {
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
    default:
      throw DTypeError("visit_opmath: corrupt dtype value");
  }
}

/// The same with the C++ type of `dtype` itself. This turns a run-time dtype into a template argument.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  if (dtype == bf16) return f(bfloat16{});
  if (dtype == f16) return f(float16{});
  return visit_opmath(dtype, std::forward<F>(f));
}

/// The same with a type of equal size, uint16_t for bf16 and f16, for code that only moves elements: no bits
/// change, not even those of a NaN.
template <class F>
decltype(auto) visit_bits(DType dtype, F&& f) {
  return is_16_bit(dtype) ? f(uint16_t{}) : visit_opmath(dtype, std::forward<F>(f));
}

/// The same for f32 and f64 only, which kernels compute in. For other dtypes the error names `function`. An
/// op whose kernel supports only these two wraps it in in_f32 (ops/in_f32.h) to serve bf16 and f16 too.
template <class F>
decltype(auto) visit_floating(const char* function, DType dtype, F&& f) {
  if (dtype == f32) return f(float{});
  check<DTypeError>(dtype == f64, function, ": needs a floating dtype, got ", dtype,
                    "; allowed are f32 and f64 (use to(dtype))");
  return f(double{});
}

/// The same for all floating dtypes. T is the type in memory; a kernel computes in opmath_t<T>.
template <class F>
decltype(auto) visit_floating_storage(const char* function, DType dtype, F&& f) {
  if (dtype == bf16) return f(bfloat16{});
  if (dtype == f16) return f(float16{});
  return visit_floating(function, dtype, std::forward<F>(f));
}

}  // namespace vox

#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <type_traits>
#include <utility>

#include <voxgrad/core/check.h>
#include <voxgrad/core/half.h>

namespace vox {

/// Element types. They never mix silently: an op on two dtypes is an error that names both. Some only store
/// numbers. Ops compute on bf16 and f16 in f32 and round their result once (Note [16-bit floating types]).
/// They move i16, u16 and i32, as scans and labels have them, but compute only after to(f32) or to(i64).
enum class DType : uint8_t { f32, f64, i64, u8, boolean, bf16, f16, i16, u16, i32 };
using enum DType;

constexpr const char* to_string(DType dtype) {
  constexpr const char* names[] = {"f32", "f64", "i64", "u8", "bool", "bf16", "f16", "i16", "u16", "i32"};
  return dtype <= i32 ? names[static_cast<int>(dtype)] : "?";
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

/// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  constexpr int64_t sizes[] = {4, 8, 8, 1, 1, 2, 2, 2, 2, 4};
  return dtype <= i32 ? sizes[static_cast<int>(dtype)] : 0;
}

constexpr bool is_16_bit(DType dtype) { return dtype == bf16 || dtype == f16; }
constexpr bool is_floating(DType dtype) { return dtype == f32 || dtype == f64 || is_16_bit(dtype); }
/// Whether ops move numbers of this dtype and refuse to compute with them.
constexpr bool is_only_stored(DType dtype) { return dtype >= i16 && dtype <= i32; }

/// The dtype that ops on `dtype` compute in: f32 for bf16 and f16, and itself for all others.
constexpr DType opmath(DType dtype) { return is_16_bit(dtype) ? f32 : dtype; }

/// The DType of a C++ element type.
template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  constexpr bool is[] = {std::is_same_v<U, float>,   std::is_same_v<U, double>,  std::is_same_v<U, int64_t>,
                         std::is_same_v<U, uint8_t>, std::is_same_v<U, bool>,    std::is_same_v<U, bfloat16>,
                         std::is_same_v<U, float16>, std::is_same_v<U, int16_t>, std::is_same_v<U, uint16_t>,
                         std::is_same_v<U, int32_t>};
  constexpr auto place = std::find(std::begin(is), std::end(is), true) - std::begin(is);
  static_assert(place < std::ssize(is),
                "voxgrad tensors hold float, double, int64_t, uint8_t, bool, bfloat16, "
                "float16, int16_t, uint16_t or int32_t");
  return static_cast<DType>(place);
}

/// Whether T is one of the floating element types, of 16 bits or more.
template <class T>
inline constexpr bool is_floating_v = std::is_floating_point_v<T> || is_16_bit_v<T>;

/// Calls `f(T{})` with the C++ type that ops on `dtype` compute in: float for bf16 and f16 too. DTypeError
/// for dtypes that are only stored.
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
      throw DTypeError(is_only_stored(dtype) ? str("no op computes in dtype ", dtype,
                                                   "; convert with to(vox::f32) or to(vox::i64)")
                                             : "visit_opmath: corrupt dtype value");
  }
}

/// The same with the C++ type of `dtype` itself. This turns a run-time dtype into a template argument.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  if (dtype == bf16) return f(bfloat16{});
  if (dtype == f16) return f(float16{});
  return visit_opmath(dtype, std::forward<F>(f));
}

/// The same for every dtype, for code that stores or converts elements.
template <class F>
decltype(auto) visit_storage(DType dtype, F&& f) {
  if (dtype == i16) return f(int16_t{});
  if (dtype == u16) return f(uint16_t{});
  if (dtype == i32) return f(int32_t{});
  return visit_dtype(dtype, std::forward<F>(f));
}

/// The same with a type of equal size, for code that only moves elements: no bits change, not even those of a
/// NaN.
template <class F>
decltype(auto) visit_bits(DType dtype, F&& f) {
  return size_of(dtype) == 2 ? f(uint16_t{}) : visit_opmath(dtype == i32 ? f32 : dtype, std::forward<F>(f));
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

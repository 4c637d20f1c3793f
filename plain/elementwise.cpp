#include <voxgrad/ops/kernels.h>
#include <voxgrad/plain/loops.h>

#include <cmath>

namespace vox::cpu {

using plain::map;

namespace {

[[noreturn]] void absent(const char* kernel) {
  throw ValueError(str(kernel, ": voxgrad_afternoon has no kernel for this op"));
}

/// Integers are computed as unsigned numbers, whose overflow is defined.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else
    return static_cast<T>(f(a, b));
}

template <class T>
T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}

template <class T>
T unary_formula(Unary op, T x) {
  const T minus_x = wrapping(T(0), x, [](auto a, auto b) { return a - b; });
  if (op == Unary::neg) return std::is_floating_point_v<T> ? -x : minus_x;
  if (op == Unary::abs) return x < T(0) ? minus_x : x;
  if (op == Unary::sign) return sign(x);
  if (op == Unary::relu) return x < T(0) ? T(0) : x;
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Unary::exp) return std::exp(x);
    if (op == Unary::log) return std::log(x);
    if (op == Unary::sqrt) return std::sqrt(x);
    if (op == Unary::tanh) return std::tanh(x);
    if (op == Unary::sigmoid) return 1 / (1 + std::exp(-x));
  }
  absent("unary");
}

/// The gradient of x for g; v is the tensor that the op's node keeps, x or y.
template <class T>
T gradient_formula(Unary op, T g, T v) {
  if (op == Unary::abs) return g * sign(v);
  if (op == Unary::sqrt) return g / (2 * v);
  if (op == Unary::tanh) return g * (1 - v * v);
  if (op == Unary::sigmoid) return g * (v * (1 - v));
  if (op == Unary::relu) return v == 0 ? 0 : g;
  absent("unary_gradient");
}

template <class T>
T binary_formula(Binary op, T a, T b, T p) {
  if (op == Binary::add) return wrapping(a, b, [](auto l, auto r) { return l + r; });
  if (op == Binary::sub) return wrapping(a, b, [](auto l, auto r) { return l - r; });
  if (op == Binary::mul) return wrapping(a, b, [](auto l, auto r) { return l * r; });
  if (op == Binary::add_scaled)
    return binary_formula(Binary::add, a, binary_formula(Binary::mul, b, p, p), p);
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Binary::div) return a / b;
  }
  absent("binary");
}

template <class T>
bool comparison_formula(Comparison op, T a, T b) {
  if (op == Comparison::eq) return a == b;
  if (op == Comparison::ne) return a != b;
  if (op == Comparison::lt) return a < b;
  if (op == Comparison::le) return a <= b;
  if (op == Comparison::gt) return a > b;
  return a >= b;
}

/// map(), for a formula that has no bool.
template <class F, class... Tensors>
void map_numbers(F f, const Tensor& y, const Tensors&... x) {
  map(
      [f]<class... T>(T... v) {
        if constexpr ((std::is_same_v<T, bool> || ...))
          return (absent("elementwise"), false);
        else
          return f(v...);
      },
      y, x...);
}

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& y, Scalar, Scalar) {
  map_numbers([op](auto v) { return unary_formula(op, v); }, y, x);
}

void unary_gradient(Unary op, const Tensor& g, const Tensor& kept, const Tensor& grad_x, Scalar, Scalar) {
  map_numbers([op](auto a, auto v) { return gradient_formula(op, a, v); }, grad_x, g, kept);
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  map_numbers([=]<class T>(T l, T r) { return binary_formula(op, l, r, detail::element<T>(p)); }, y, a, b);
}

void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y) {
  map([op](auto l, auto r) { return comparison_formula(op, l, r); }, y, a, b);
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>(T) {
    plain::for_each_element(
        [&](const auto& at) {
          const bool first = detail::ptr<bool>(condition)[at[1]];
          detail::mutable_ptr<T>(y)[at[0]] = first ? detail::ptr<T>(a)[at[2]] : detail::ptr<T>(b)[at[3]];
        },
        y, condition, a, b);
  });
}

void copy(const Tensor& source, const Tensor& target) {
  visit_dtype(source.dtype(), [&]<class From>(From) {
    visit_dtype(target.dtype(), [&]<class To>(To) {
      plain::for_each_element(
          [&](const auto& at) {
            detail::mutable_ptr<To>(target)[at[0]] = detail::convert<To>(detail::ptr<From>(source)[at[1]]);
          },
          target, source);
    });
  });
}

void fill(const Tensor& target, Scalar value) {
  visit_dtype(target.dtype(), [&]<class T>(T) {
    plain::for_each_element(
        [&](const auto& at) { detail::mutable_ptr<T>(target)[at[0]] = detail::element<T>(value); }, target);
  });
}

}  // namespace vox::cpu

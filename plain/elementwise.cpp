#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/plain/loops.h>

#include <cmath>

namespace vox::cpu {

using plain::map;

namespace {

[[noreturn]] void absent(const char* kernel) {
  throw ValueError(str(kernel, ": voxgrad_afternoon has no kernel for this op"));
}

template <class T>
T unary_formula(Unary op, T x) {
  using M = detail::Numbers<T>;
  if (op == Unary::neg) return M::negative(x);
  if (op == Unary::abs) return M::is_negative(x) ? M::negative(x) : x;
  if (op == Unary::sign) return M::sign(x);
  if (op == Unary::relu) return M::is_negative(x) ? T(0) : x;
  if constexpr (M::is_real) {
    if (op == Unary::exp) return std::exp(x);
    if (op == Unary::log) return std::log(x);
    if (op == Unary::sqrt) return std::sqrt(x);
    if (op == Unary::tanh) return std::tanh(x);
    if (op == Unary::sigmoid) return 1 / (1 + std::exp(-x));
  }
  absent("unary");
}

template <class T>
T gradient_formula(Unary op, T g, T kept) {
  using M = detail::Numbers<T>;
  if constexpr (M::is_real) {
    if (op == Unary::abs) return detail::gradient_formula<Unary::abs, M>(g, kept, T(0), T(0));
    if (op == Unary::sqrt) return detail::gradient_formula<Unary::sqrt, M>(g, kept, T(0), T(0));
    if (op == Unary::tanh) return detail::gradient_formula<Unary::tanh, M>(g, kept, T(0), T(0));
    if (op == Unary::sigmoid) return detail::gradient_formula<Unary::sigmoid, M>(g, kept, T(0), T(0));
    if (op == Unary::relu) return detail::gradient_formula<Unary::relu, M>(g, kept, T(0), T(0));
  }
  absent("unary_gradient");
}

template <class T>
T binary_formula(Binary op, T a, T b, T p) {
  using M = detail::Numbers<T>;
  if (op == Binary::add) return detail::binary_formula<Binary::add, M>(a, b, p);
  if (op == Binary::sub) return detail::binary_formula<Binary::sub, M>(a, b, p);
  if (op == Binary::mul) return detail::binary_formula<Binary::mul, M>(a, b, p);
  if (op == Binary::add_scaled) return detail::binary_formula<Binary::add_scaled, M>(a, b, p);
  if (op == Binary::div && M::is_real) return a / b;
  absent("binary");
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
  map([op](auto l, auto r) { return detail::comparison_formula(op, l, r); }, y, a, b);
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
  visit_storage(source.dtype(), [&]<class From>(From) {
    visit_storage(target.dtype(), [&]<class To>(To) {
      plain::for_each_element(
          [&](const auto& at) {
            detail::mutable_ptr<To>(target)[at[0]] = detail::convert<To>(detail::ptr<From>(source)[at[1]]);
          },
          target, source);
    });
  });
}

void fill(const Tensor& target, Scalar value) {
  visit_storage(target.dtype(), [&]<class T>(T) {
    plain::for_each_element(
        [&](const auto& at) { detail::mutable_ptr<T>(target)[at[0]] = detail::element<T>(value); }, target);
  });
}

}  // namespace vox::cpu

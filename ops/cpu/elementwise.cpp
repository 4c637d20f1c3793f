#include <voxgrad/ops/elementwise_kernels.h>

#include <cmath>
#include <functional>
#include <limits>

#include <voxgrad/ops/cpu/blocks.h>

// Elementwise arithmetic and functions, a line each, in Eigen's array expressions over blocks of 64 elements:
// see Note [Blocks]. One indirect call a block keeps every op to one instantiation per dtype.

namespace vox::cpu {
namespace {

template <class T>
using UnaryFunction = std::function<void(const Block<T>& x, Block<T>& y)>;
template <class T>
using BinaryFunction = std::function<void(const Block<T>& a, const Block<T>& b, Block<T>& y)>;

/// y = f(x) lane by lane, for functions that have no packet version.
template <class T, class F>
UnaryFunction<T> lanes(F f) {
  return [f](const Block<T>& x, Block<T>& y) { y = x.unaryExpr(f); };
}

/// Recomputes by `f` the lanes where `outside(x)`: the ranges that a packet function gets wrong.
template <class T, class Outside, class F>
void repair(const Block<T>& x, Block<T>& y, Outside outside, F f) {
  bool any = false;
  for (int64_t i = 0; i < block_size; ++i) any |= outside(x[i]);
  if (!any) return;
  for (int64_t i = 0; i < block_size; ++i) {
    if (outside(x[i])) y[i] = f(x[i]);
  }
}

/// -v; integers wrap around (an unsigned subtraction, since a signed overflow is undefined).
template <class T>
T negative(T v) {
  if constexpr (std::is_floating_point_v<T>)
    return -v;
  else
    return static_cast<T>(0u - static_cast<std::make_unsigned_t<T>>(v));
}

/// Ops of all arithmetic dtypes.
template <class T>
UnaryFunction<T> function_of(Unary op, T p, T q) {
  switch (op) {
    case Unary::neg:
      return lanes<T>(negative<T>);
    case Unary::abs:
      if constexpr (std::is_floating_point_v<T>)
        return [](const Block<T>& x, Block<T>& y) { y = x.abs(); };
      else
        return lanes<T>([](T v) { return v < T(0) ? negative(v) : v; });
    case Unary::sign:
      return lanes<T>([](T v) { return v > T(0) ? T(1) : v < T(0) ? T(-1) : v; });
    case Unary::relu:
      return lanes<T>([](T v) { return v < T(0) ? T(0) : v; });
    case Unary::clamp:
      return lanes<T>([p, q](T v) { return v < p ? p : v > q ? q : v; });
    default:
      break;
  }
  throw DTypeError("unary: this op has no kernel for integers");
}

/// Ops of the floating dtypes. Accuracy: tests/ops/elementwise_test.cpp.
template <class T>
UnaryFunction<T> floating_function_of(Unary op, T p, T q) {
  constexpr T smallest = std::numeric_limits<T>::min();    // of the normal numbers
  constexpr T log_smallest = sizeof(T) == 4 ? -87 : -708;  // a little above its logarithm
  switch (op) {
    case Unary::exp:  // Eigen's stops falling at the smallest normal number
      return [](const Block<T>& x, Block<T>& y) {
        y = x.exp();
        repair(
            x, y, [](T v) { return v < log_smallest; }, [](T v) { return std::exp(v); });
      };
    case Unary::log:  // Eigen's takes all denormal numbers for the smallest normal one
      return [](const Block<T>& x, Block<T>& y) {
        y = x.log();
        repair(
            x, y, [](T v) { return v > 0 && v < smallest; }, [](T v) { return std::log(v); });
      };
    case Unary::sqrt:  // Eigen's is an approximation of 3 ulp, and NaN at infinity
      return lanes<T>([](T v) { return std::sqrt(v); });
    case Unary::rsqrt:
      return lanes<T>([](T v) { return T(1) / std::sqrt(v); });
    case Unary::erf:
      return lanes<T>([](T v) { return std::erf(v); });
    case Unary::tanh:
      return [](const Block<T>& x, Block<T>& y) { y = x.tanh(); };
    case Unary::sigmoid:
      return [](const Block<T>& x, Block<T>& y) { y = (T(1) + (-x).exp()).inverse(); };
    case Unary::leaky_relu:
      return lanes<T>([p](T v) { return v < T(0) ? p * v : v; });
    case Unary::gelu:  // 1 + erf(z) is erfc(-z), which does not cancel for negative z
      return lanes<T>([](T v) { return T(0.5) * v * std::erfc(v * T(-0.70710678118654752440)); });
    case Unary::silu:
      return [](const Block<T>& x, Block<T>& y) { y = x / (T(1) + (-x).exp()); };
    default:
      return function_of<T>(op, p, q);
  }
}

template <class T>
T power(T a, T b) {
  return std::pow(a, b);
}

template <class T>
BinaryFunction<T> function_of(Binary op, T p) {
  using A = const Block<T>&;
  switch (op) {
    case Binary::add:
      return [](A a, A b, Block<T>& y) { y = a + b; };
    case Binary::sub:
      return [](A a, A b, Block<T>& y) { y = a - b; };
    case Binary::mul:
      return [](A a, A b, Block<T>& y) { y = a * b; };
    case Binary::add_scaled:
      return [p](A a, A b, Block<T>& y) { y = a + b * p; };
    case Binary::maximum:  // a NaN in a fails the comparison, one in b is asked for
      return [](A a, A b, Block<T>& y) {
        for (int64_t i = 0; i < block_size; ++i) y[i] = a[i] < b[i] || b[i] != b[i] ? b[i] : a[i];
      };
    case Binary::minimum:
      return [](A a, A b, Block<T>& y) {
        for (int64_t i = 0; i < block_size; ++i) y[i] = a[i] > b[i] || b[i] != b[i] ? b[i] : a[i];
      };
    case Binary::div:
      if constexpr (std::is_floating_point_v<T>) return [](A a, A b, Block<T>& y) { y = a / b; };
      break;
    case Binary::pow:
      if constexpr (std::is_floating_point_v<T>)
        return [](A a, A b, Block<T>& y) { y = a.binaryExpr(b, &power<T>); };
      break;
  }
  throw DTypeError("binary: this op has no kernel for integers");
}

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q) {
  visit_opmath(x.dtype(), [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>)
      map_blocks<T, T>(y, floating_function_of<T>(op, detail::element<T>(p), detail::element<T>(q)), x);
    else if constexpr (!std::is_same_v<T, bool>)
      map_blocks<T, T>(y, function_of<T>(op, detail::element<T>(p), detail::element<T>(q)), x);
    else
      throw DTypeError("unary: no arithmetic on dtype bool");
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  visit_opmath(y.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError("binary: no arithmetic on dtype bool");
    } else if constexpr (std::is_same_v<T, int64_t>) {
      if (op == Binary::maximum || op == Binary::minimum) {
        map_blocks<T, T>(y, function_of<T>(op, 0), a, b);
      } else {  // the same bits as unsigned numbers, where overflow is defined
        map_blocks<uint64_t, uint64_t>(
            y, function_of<uint64_t>(op, static_cast<uint64_t>(detail::element<T>(p))), a, b);
      }
    } else {
      map_blocks<T, T>(y, function_of<T>(op, detail::element<T>(p)), a, b);
    }
  });
}

}  // namespace vox::cpu

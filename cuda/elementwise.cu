#include <limits>
#include <type_traits>
#include <utility>

#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/exponential.cuh>
#include <voxgrad/cuda/map.cuh>

// Elementwise ops, one line each; map.cuh maps them over the elements. The functions are CUDA's
// accurate ones; the fast intrinsics serve results of 16 bits only.

namespace vox::cuda {

namespace {

template <class T>
inline constexpr bool is_real = std::is_floating_point_v<T>;

/// Integers are computed as unsigned numbers, whose overflow is defined.
template <class T, bool = is_real<T>>
struct WrappingOf {
  using type = T;
};
template <class T>
struct WrappingOf<T, false> {
  using type = std::make_unsigned_t<T>;
};

template <class T>
__device__ bool is_negative(T v) {
  if constexpr (std::is_unsigned_v<T>)
    return false;
  else
    return v < T(0);
}

template <class T>
__device__ T negative(T v) {
  if constexpr (is_real<T>)
    return -v;
  else
    return static_cast<T>(typename WrappingOf<T>::type(0) - static_cast<typename WrappingOf<T>::type>(v));
}

template <class T>
__device__ T magnitude(T v) {
  if constexpr (is_real<T>)
    return ::fabs(v);
  else
    return is_negative(v) ? negative(v) : v;
}

// If `half`, the result is rounded to 16 bits next, and fast instructions suffice: their relative error is
// below 2^-17. Each function must keep that relative error near 0 and in its tails.

/// For divisors from 1 to 2^126.
template <bool half, class T>
__device__ T quotient(T a, T b) {
  if constexpr (half)
    return __fdividef(a, b);
  else
    return a / b;
}

template <bool half, class T>
__device__ T sigmoid(T v) {
  if constexpr (half) {
    const T t = exponential<half>(-::fabs(v));
    return quotient<half>(v < T(0) ? t : T(1), T(1) + t);
  } else {
    return T(1) / (T(1) + ::exp(-v));
  }
}

/// log(1 + t) for 0 <= t <= 1.
template <bool half, class T>
__device__ T log_of_1_plus(T t) {
  if constexpr (half)
    return t < T(0.0625) ? t * (T(1) - t * (T(0.5) - t * (T(1) / T(3) - t * T(0.25)))) : __logf(T(1) + t);
  else
    return ::log1p(t);
}

/// exp(v) - 1 for v <= 0.
template <bool half, class T>
__device__ T exponential_minus_1(T v) {
  if constexpr (half)
    return v > T(-0.25) ? v + v * v * (T(0.5) + v * (T(1) / T(6) + v * (T(1) / T(24) + v * T(1) / T(120))))
                        : exponential<half>(v) - T(1);
  else
    return ::expm1(v);
}

/// v, limited to [0, 6].
template <class T>
__device__ T up_to_6(T v) {
  return v < T(0) ? T(0) : v > T(6) ? T(6) : v;
}

/// w = tanh(log(1 + e^v)) = n / d, and d - n, which does not cancel. With t = e^-|v|, n = t^2 + 2t for
/// negative v, and 1 + 2t (the same times t^2) for others.
template <bool half, class T>
struct TanhOfSoftplus {
  T n, rest;  // d = n + rest
  __device__ explicit TanhOfSoftplus(T v) {
    const T t = exponential<half>(-::fabs(v));
    n = v < T(0) ? t * (t + T(2)) : T(1) + (t + t);
    rest = v < T(0) ? T(2) : T(2) * t * t;
  }
  __device__ T value() const { return quotient<half>(n, n + rest); }
  __device__ T one_minus_square() const {
    const T d = n + rest;
    return quotient<half>(rest, d) * quotient<half>(d + n, d);
  }
};

// ---- One operand ------------------------------------------------------------------------------------------

template <Unary op, class T, bool half>
struct UnaryOp {
  T p, q;
  __device__ T operator()(T v) const {
    if constexpr (op == Unary::neg) return negative(v);
    if constexpr (op == Unary::abs) return magnitude(v);
    if constexpr (op == Unary::sign) return v > T(0) ? T(1) : is_negative(v) ? T(-1) : v;
    if constexpr (op == Unary::relu) return is_negative(v) ? T(0) : v;
    if constexpr (op == Unary::clamp || op == Unary::hardtanh) return v < p ? p : v > q ? q : v;
    if constexpr (op == Unary::floor) return ::floor(v);
    if constexpr (op == Unary::ceil) return ::ceil(v);
    if constexpr (op == Unary::round) return ::rint(v);
    if constexpr (op == Unary::sin) return ::sin(v);
    if constexpr (op == Unary::cos) return ::cos(v);
    if constexpr (op == Unary::log1p) return ::log1p(v);
    if constexpr (op == Unary::expm1) return ::expm1(v);
    if constexpr (op == Unary::exp) return ::exp(v);
    if constexpr (op == Unary::log) return ::log(v);
    if constexpr (op == Unary::sqrt) return ::sqrt(v);
    if constexpr (op == Unary::rsqrt) return T(1) / ::sqrt(v);
    if constexpr (op == Unary::erf) return ::erf(v);
    if constexpr (op == Unary::tanh) return ::tanh(v);
    if constexpr (op == Unary::sigmoid) return sigmoid<half>(v);
    if constexpr (op == Unary::leaky_relu) return is_negative(v) ? p * v : v;
    // 1 + erf(z) is erfc(-z), which does not cancel for negative z
    if constexpr (op == Unary::gelu) return T(0.5) * v * ::erfc(v * T(-0.70710678118654752440));
    if constexpr (op == Unary::silu) return half ? v * sigmoid<half>(v) : v / (T(1) + ::exp(-v));
    if constexpr (op == Unary::hardsigmoid) return up_to_6(v + T(3)) / T(6);
    if constexpr (op == Unary::hardswish) return v * up_to_6(v + T(3)) / T(6);
    if constexpr (op == Unary::elu) return v > T(0) ? v : p * exponential_minus_1<half>(v);
    if constexpr (op == Unary::softplus) {
      const T x = v * p;
      return x > q ? v : ((x > T(0) ? x : T(0)) + log_of_1_plus<half>(exponential<half>(-::fabs(x)))) / p;
    }
    if constexpr (op == Unary::mish) return v * TanhOfSoftplus<half, T>(v).value();
  }
};

/// The gradient by v for g, where v is what the op's node keeps: the input x, or the output y.
template <Unary op, class T>
struct UnaryGradient {
  T p, q;
  __device__ T operator()(T g, T v) const {
    if constexpr (op == Unary::abs) return g * (v > T(0) ? T(1) : v < T(0) ? T(-1) : v);
    if constexpr (op == Unary::sqrt) return g / (T(2) * v);
    if constexpr (op == Unary::rsqrt) return g * (v * v * v * T(-0.5));
    if constexpr (op == Unary::sin) return g * ::cos(v);
    if constexpr (op == Unary::cos) return g * -::sin(v);
    if constexpr (op == Unary::log1p) return g / (v + T(1));
    if constexpr (op == Unary::expm1) return g * (v + T(1));
    if constexpr (op == Unary::erf) return g * (::exp(-(v * v)) * T(1.12837916709551257390));
    if constexpr (op == Unary::tanh) return g * (T(1) - v * v);
    if constexpr (op == Unary::sigmoid) return g * (v * (T(1) - v));
    if constexpr (op == Unary::relu) return v == T(0) ? T(0) : g;
    if constexpr (op == Unary::leaky_relu) return v > T(0) ? g : g * p;
    if constexpr (op == Unary::clamp) return v >= p && v <= q ? g : T(0);
    if constexpr (op == Unary::hardtanh) return v <= p || v >= q ? T(0) : g;
    if constexpr (op == Unary::hardsigmoid) return v > T(-3) && v < T(3) ? g / T(6) : T(0);
    if constexpr (op == Unary::hardswish) return v <= T(-3) ? T(0) : v >= T(3) ? g : g * (v / T(3) + T(0.5));
    if constexpr (op == Unary::elu) return v > T(0) ? g : g * (p * ::exp(v));
    if constexpr (op == Unary::softplus) return v * p > q ? g : g * sigmoid<false>(v * p);
    if constexpr (op == Unary::gelu) {
      const T distribution = T(0.5) * ::erfc(v * T(-0.70710678118654752440));
      return g * (distribution + v * (::exp(v * v * T(-0.5)) * T(0.39894228040143267794)));
    }
    if constexpr (op == Unary::silu) {
      const T s = sigmoid<false>(v);
      return g * (s * (T(1) + v * (T(1) - s)));
    }
    if constexpr (op == Unary::mish) {
      const TanhOfSoftplus<false, T> w(v);
      return g * (w.value() + v * sigmoid<false>(v) * w.one_minus_square());
    }
  }
};

// ---- Two operands -----------------------------------------------------------------------------------------

template <Binary op, class T>
struct BinaryOp {
  T p;
  __device__ T operator()(T a, T b) const {
    using W = typename WrappingOf<T>::type;
    [[maybe_unused]] const W l = static_cast<W>(a), r = static_cast<W>(b);
    if constexpr (op == Binary::add) return static_cast<T>(l + r);
    if constexpr (op == Binary::sub) return static_cast<T>(l - r);
    if constexpr (op == Binary::mul) return static_cast<T>(l * r);
    if constexpr (op == Binary::add_scaled) return static_cast<T>(l + static_cast<W>(p) * r);
    // NaN in a makes the comparison false, so a is returned; NaN in b needs the test.
    if constexpr (op == Binary::maximum) return a < b || b != b ? b : a;
    if constexpr (op == Binary::minimum) return a > b || b != b ? b : a;
    if constexpr (op == Binary::div) return a / b;
    // CUDA's pow is some ulp off even for the exponents 1 and 2, where the C library is exact.
    if constexpr (op == Binary::pow) return b == T(1) ? a : b == T(2) ? a * a : ::pow(a, b);
  }
};

/// The gradient of an operand for g (cuda::binary_gradient in ops/kernels.h). The formulas of the composed
/// gradients in ops/binary.cpp and ops/comparison.cpp explain the special points.
template <Binary op, int operand, class T>
struct BinaryGradient {
  __device__ T operator()(T g, T a, T b) const {
    if constexpr (op == Binary::div) return -g * (a / b / b);
    if constexpr (op == Binary::maximum || op == Binary::minimum) {
      const T own = operand == 0 ? a : b, other = operand == 0 ? b : a;
      const bool loses = op == Binary::maximum ? own < other : own > other;
      return own == other ? g * T(0.5) : loses ? T(0) : g;
    }
    if constexpr (op == Binary::pow && operand == 0) {
      constexpr T smallest_normal = std::numeric_limits<T>::min();
      const T base = b != T(0) || ::fabs(a) >= smallest_normal ? a : T(1);
      return g * (b * BinaryOp<Binary::pow, T>{}(base, b - T(1)));
    }
    if constexpr (op == Binary::pow && operand == 1) {
      const T y = b;  // 0, -0 or 1 if a = 0 and the exponent is not negative, else infinite
      return g * (y * ::log(a == T(0) && ::fabs(y) <= T(1) ? T(1) : a));
    }
  }
};

// ---- From the number of an op to its kernel ---------------------------------------------------------------

/// Calls f.operator()<op>() with `op` as a compile-time constant. Throws DTypeError if it has no kernel for
/// T.
template <class T, auto count, class F, int... i>
void visit_op(decltype(count) op, F f, std::integer_sequence<int, i...>) {
  using Op = decltype(count);
  const auto visit = [&]<int k>(std::integral_constant<int, k>) {
    constexpr Op candidate = static_cast<Op>(k);
    if (op != candidate) return;
    if constexpr (is_floating_v<T> || takes_integers(candidate))
      f.template operator()<candidate>();
    else
      throw DTypeError("elementwise: this op has no kernel for integers");
  };
  (visit(std::integral_constant<int, i>{}), ...);
}
template <class T, auto count, class F>
void visit_op(decltype(count) op, F f) {
  visit_op<T, count>(op, f, std::make_integer_sequence<int, static_cast<int>(count)>{});
}

// ---- Comparisons and choices ------------------------------------------------------------------------------

template <class C>
struct Compare {
  Comparison op;  // at run time: threads do not diverge, and each dtype needs one kernel instead of six
  __device__ bool operator()(C l, C r) const {
    switch (op) {
      case Comparison::eq:
        return l == r;
      case Comparison::ne:
        return l != r;
      case Comparison::lt:
        return l < r;
      case Comparison::le:
        return l <= r;
      case Comparison::gt:
        return l > r;
      case Comparison::ge:
        return l >= r;
      case Comparison::count:
        break;
    }
    return false;
  }
};

struct Choose {
  template <class T>
  __device__ T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

}  // namespace

// ---- The entries of ops/kernels.h ------------------------------------------------------------------------

void unary(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q) {
  visit_dtype(x.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError("unary: no arithmetic on dtype bool");
    } else {
      using C = opmath_t<T>;
      visit_op<T, Unary::count>(op, [&]<Unary which>() {
        map("unary", UnaryOp<which, C, is_16_bit_v<T>>{detail::element<C>(p), detail::element<C>(q)},
            Out<T>{y}, In<T>{x});
      });
    }
  });
}

void unary_gradient(Unary op, const Tensor& g, const Tensor& kept, const Tensor& grad_x, Scalar p, Scalar q) {
  visit_floating_storage("unary_gradient", grad_x.dtype(), [&]<class T>(T) {
    using C = opmath_t<T>;
    visit_op<T, Unary::count>(op, [&]<Unary which>() {
      if constexpr (has_gradient(which))
        map("unary_gradient", UnaryGradient<which, C>{detail::element<C>(p), detail::element<C>(q)},
            Out<T>{grad_x}, In<T>{g}, In<T>{kept});
    });
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  visit_dtype(y.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError("binary: no arithmetic on dtype bool");
    } else {
      using C = opmath_t<T>;
      visit_op<T, Binary::count>(op, [&]<Binary which>() {
        map("binary", BinaryOp<which, C>{detail::element<C>(p)}, Out<T>{y}, In<T>{a}, In<T>{b});
      });
    }
  });
}

void binary_gradient(Binary op, int operand, const Tensor& g, const Tensor& a, const Tensor& b,
                     const Tensor& grad) {
  visit_floating_storage("binary_gradient", grad.dtype(), [&]<class T>(T) {
    const auto run = [&]<Binary which, int of>() {
      if (op == which && operand == of)
        map("binary_gradient", BinaryGradient<which, of, opmath_t<T>>{}, Out<T>{grad}, In<T>{g}, In<T>{a},
            In<T>{b});
    };
    run.template operator()<Binary::div, 1>();
    run.template operator()<Binary::maximum, 0>();
    run.template operator()<Binary::maximum, 1>();
    run.template operator()<Binary::minimum, 0>();
    run.template operator()<Binary::minimum, 1>();
    run.template operator()<Binary::pow, 0>();
    run.template operator()<Binary::pow, 1>();
  });
}

void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_dtype(a.dtype(), [&]<class T>(T) {
    map("compare", Compare<opmath_t<T>>{op}, Out<bool>{y}, In<T>{a}, In<T>{b});
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_bits(y.dtype(),
             [&]<class T>(T) { map("where", Choose{}, Out<T>{y}, In<bool>{condition}, In<T>{a}, In<T>{b}); });
}

}  // namespace vox::cuda

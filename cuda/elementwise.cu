#include <limits>
#include <type_traits>

#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/exponential.cuh>
#include <voxgrad/cuda/map.cuh>

// The kernels of elementwise ops: map.cuh maps ops/elementwise_formulas.h over the elements.

namespace vox::cuda {

namespace {

/// The arithmetic of ops/elementwise_formulas.h: CUDA's accurate functions. If `half`, the result is rounded
/// to 16 bits next, and fast instructions suffice: their relative error is below 2^-17. Each function must
/// keep that relative error near 0 and in its tails.
template <class T, bool half = false>
struct Math : detail::Numbers<T> {
  using Base = detail::Numbers<T>;

  static __device__ T magnitude(T x) {
    if constexpr (Base::is_real)
      return ::fabs(x);
    else
      return Base::is_negative(x) ? Base::negative(x) : x;
  }
  static __device__ T floor(T x) { return ::floor(x); }
  static __device__ T ceil(T x) { return ::ceil(x); }
  static __device__ T round(T x) { return ::rint(x); }
  static __device__ T exp(T x) { return ::exp(x); }
  static __device__ T log(T x) { return ::log(x); }
  static __device__ T sqrt(T x) { return ::sqrt(x); }
  static __device__ T sin(T x) { return ::sin(x); }
  static __device__ T cos(T x) { return ::cos(x); }
  static __device__ T log1p(T x) { return ::log1p(x); }
  static __device__ T expm1(T x) { return ::expm1(x); }
  static __device__ T erf(T x) { return ::erf(x); }
  static __device__ T tanh(T x) { return ::tanh(x); }

  /// a / b, for b from 1 to 2^126.
  static __device__ T quotient(T a, T b) {
    if constexpr (half)
      return __fdividef(a, b);
    else
      return a / b;
  }
  static __device__ T sigmoid(T x) {
    if constexpr (half) {
      const T t = exponential<half>(-::fabs(x));
      return quotient(x < T(0) ? t : T(1), T(1) + t);
    } else {
      return T(1) / (T(1) + ::exp(-x));
    }
  }
  static __device__ T silu(T x) { return half ? x * sigmoid(x) : x / (T(1) + ::exp(-x)); }

  /// exp(x) - 1 for x <= 0.
  static __device__ T expm1_of_negative(T x) {
    if constexpr (half)
      return x > T(-0.25) ? x + x * x * (T(0.5) + x * (T(1) / T(6) + x * (T(1) / T(24) + x * T(1) / T(120))))
                          : exponential<half>(x) - T(1);
    else
      return ::expm1(x);
  }
  /// log(1 + t) for 0 <= t <= 1.
  static __device__ T log_of_1_plus(T t) {
    if constexpr (half)
      return t < T(0.0625) ? t * (T(1) - t * (T(0.5) - t * (T(1) / T(3) - t * T(0.25)))) : __logf(T(1) + t);
    else
      return ::log1p(t);
  }
  static __device__ T log_of_1_plus_exp(T x) {
    return (x > T(0) ? x : T(0)) + log_of_1_plus(exponential<half>(-::fabs(x)));
  }

  /// The normal distribution: 1 + erf(z) is erfc(-z), which does not cancel for negative z.
  static __device__ T gelu(T x) { return T(0.5) * x * ::erfc(x * T(-0.70710678118654752440)); }
  static __device__ T gelu_slope(T x) {
    const T distribution = T(0.5) * ::erfc(x * T(-0.70710678118654752440));
    return distribution + x * (::exp(x * x * T(-0.5)) * T(0.39894228040143267794));
  }

  /// w = tanh(log(1 + e^x)) = n / d, and d - n, which does not cancel. With t = e^-|x|, n = t^2 + 2t for
  /// negative x, and 1 + 2t (the same times t^2) for others.
  struct TanhOfSoftplus {
    T n, rest;  // d = n + rest
    __device__ explicit TanhOfSoftplus(T x) {
      const T t = exponential<half>(-::fabs(x));
      n = x < T(0) ? t * (t + T(2)) : T(1) + (t + t);
      rest = x < T(0) ? T(2) : T(2) * t * t;
    }
    __device__ T value() const { return quotient(n, n + rest); }
    __device__ T one_minus_square() const {
      const T d = n + rest;
      return quotient(rest, d) * quotient(d + n, d);
    }
  };
  static __device__ T mish(T x) { return x * TanhOfSoftplus(x).value(); }
  static __device__ T mish_slope(T x) {
    const TanhOfSoftplus w(x);
    return w.value() + x * sigmoid(x) * w.one_minus_square();
  }

  /// CUDA's pow is some ulp off even for the exponents 1 and 2, where the C library is exact.
  static __device__ T power(T a, T b) { return b == T(1) ? a : b == T(2) ? a * a : ::pow(a, b); }
};

// ---- The families of ops, of which OneOf (map.cuh) takes one
// ------------------------------------------------

template <class T, bool half>
struct UnaryOps {
  using Op = Unary;
  using Number = T;
  static constexpr int count = unary_count;
  static constexpr bool broadcasts = false;
  static constexpr bool has(Unary op) { return std::is_floating_point_v<T> || takes_integers(op); }
  template <Unary op>
  static __device__ T apply(T p, T q, T x) {
    return detail::unary_formula<op, Math<T, half>>(x, p, q);
  }
};

template <class T>
struct UnaryGradients : UnaryOps<T, false> {
  static constexpr bool has(Unary op) { return has_gradient(op); }
  template <Unary op>
  static __device__ T apply(T p, T q, T g, T kept) {
    return detail::gradient_formula<op, Math<T>>(g, kept, p, q);
  }
};

template <class T>
struct BinaryOps {
  using Op = Binary;
  using Number = T;
  static constexpr int count = binary_count;
  static constexpr bool broadcasts = true;
  static constexpr bool has(Binary op) { return std::is_floating_point_v<T> || takes_integers(op); }
  template <Binary op>
  static __device__ T apply(T p, T, T a, T b) {
    return detail::binary_formula<op, Math<T>>(a, b, p);
  }
};

/// The gradient of an operand for g (cuda::binary_gradient in ops/kernels.h). The formulas of the composed
/// gradients in ops/binary.cpp and ops/comparison.cpp explain the special points.
template <class T>
struct BinaryGradients {
  using Op = int;  // number(op, operand)
  using Number = T;
  static constexpr int count = 2 * binary_count;
  static constexpr bool broadcasts = false;
  static constexpr int number(Binary op, int operand) { return 2 * static_cast<int>(op) + operand; }
  static constexpr bool has(int i) {
    const auto op = static_cast<Binary>(i / 2);
    return op == Binary::maximum || op == Binary::minimum || op == Binary::pow || i == number(Binary::div, 1);
  }
  template <int i>
  static __device__ T apply(T, T, T g, T a, T b) {
    constexpr auto op = static_cast<Binary>(i / 2);
    constexpr int operand = i % 2;
    if constexpr (op == Binary::div) return -g * (a / b / b);
    if constexpr (op == Binary::maximum || op == Binary::minimum) {
      const T own = operand == 0 ? a : b, other = operand == 0 ? b : a;
      const bool loses = op == Binary::maximum ? own < other : own > other;
      return own == other ? g * T(0.5) : loses ? T(0) : g;
    }
    if constexpr (op == Binary::pow && operand == 0) {
      constexpr T smallest_normal = std::numeric_limits<T>::min();
      const T base = b != T(0) || ::fabs(a) >= smallest_normal ? a : T(1);
      return g * (b * Math<T>::power(base, b - T(1)));
    }
    if constexpr (op == Binary::pow && operand == 1) {
      const T y = b;  // 0, -0 or 1 if a = 0 and the exponent is not negative, else infinite
      return g * (y * ::log(a == T(0) && ::fabs(y) <= T(1) ? T(1) : a));
    }
  }
};

// ---- Comparisons and choices ------------------------------------------------------------------------------

template <class T>
struct Compare {
  Comparison op;  // at run time: threads do not diverge, and each dtype needs one kernel instead of six
  __device__ bool operator()(T a, T b) const { return detail::comparison_formula(op, a, b); }
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
      using Ops = UnaryOps<opmath_t<T>, is_16_bit_v<T>>;
      map("unary", OneOf<Ops>(op, p, q), Out<T>{y}, In<T>{x});
    }
  });
}

void unary_gradient(Unary op, const Tensor& g, const Tensor& kept, const Tensor& grad_x, Scalar p, Scalar q) {
  visit_floating_storage("unary_gradient", grad_x.dtype(), [&]<class T>(T) {
    map("unary_gradient", OneOf<UnaryGradients<opmath_t<T>>>(op, p, q), Out<T>{grad_x}, In<T>{g},
        In<T>{kept});
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  visit_dtype(y.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>)
      throw DTypeError("binary: no arithmetic on dtype bool");
    else
      map("binary", OneOf<BinaryOps<opmath_t<T>>>(op, p, 0), Out<T>{y}, In<T>{a}, In<T>{b});
  });
}

void binary_gradient(Binary op, int operand, const Tensor& g, const Tensor& a, const Tensor& b,
                     const Tensor& grad) {
  visit_floating_storage("binary_gradient", grad.dtype(), [&]<class T>(T) {
    using Ops = BinaryGradients<opmath_t<T>>;
    map("binary_gradient", OneOf<Ops>(Ops::number(op, operand), 0, 0), Out<T>{grad}, In<T>{g}, In<T>{a},
        In<T>{b});
  });
}

void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_dtype(a.dtype(), [&]<class T>(T) {
    map("compare", Compare<opmath_t<T>>{op}, Out<bool>{y}, In<T>{a}, In<T>{b});
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_storage(y.dtype(), [&]<class T>(T) {
    using Bits = bits_t<T>;
    map("where", Choose{}, Out<Bits>{y}, In<bool>{condition}, In<Bits>{a}, In<Bits>{b});
  });
}

}  // namespace vox::cuda

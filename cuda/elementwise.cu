#include <type_traits>
#include <utility>

#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/elementwise.cuh>

// Elementwise ops, one line each; elementwise.cuh maps them over the elements. The functions are CUDA's
// accurate ones, not the fast intrinsics.

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

// ---- One operand ------------------------------------------------------------------------------------------

template <Unary op, class T>
struct UnaryOp {
  T p, q;
  __device__ T operator()(T v) const {
    if constexpr (op == Unary::neg) return negative(v);
    if constexpr (op == Unary::abs) return magnitude(v);
    if constexpr (op == Unary::sign) return v > T(0) ? T(1) : is_negative(v) ? T(-1) : v;
    if constexpr (op == Unary::relu) return is_negative(v) ? T(0) : v;
    if constexpr (op == Unary::clamp) return v < p ? p : v > q ? q : v;
    if constexpr (op == Unary::exp) return ::exp(v);
    if constexpr (op == Unary::log) return ::log(v);
    if constexpr (op == Unary::sqrt) return ::sqrt(v);
    if constexpr (op == Unary::rsqrt) return T(1) / ::sqrt(v);
    if constexpr (op == Unary::erf) return ::erf(v);
    if constexpr (op == Unary::tanh) return ::tanh(v);
    if constexpr (op == Unary::sigmoid) return T(1) / (T(1) + ::exp(-v));
    if constexpr (op == Unary::leaky_relu) return is_negative(v) ? p * v : v;
    // 1 + erf(z) is erfc(-z), which does not cancel for negative z
    if constexpr (op == Unary::gelu) return T(0.5) * v * ::erfc(v * T(-0.70710678118654752440));
    if constexpr (op == Unary::silu) return v / (T(1) + ::exp(-v));
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

// ---- From the number of an op to its kernel
// ----------------------------------------------------------------

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

// ---- Comparisons and choices, a thread per element --------------------------------------------------------

template <class T>
struct Compare {
  detail::StridedLayout<3> layout;
  Comparison op;  // at run time: threads do not diverge, and each dtype needs one kernel instead of six
  Operand<T> a, b;
  bool* y;
  __device__ void operator()(int64_t i) const {
    const auto at = layout.offsets(i);
    y[at[0]] = holds(a[at[1]], b[at[2]]);
  }
  __device__ bool holds(opmath_t<T> l, opmath_t<T> r) const {
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
    }
    return false;
  }
};

template <class T>
struct Choose {
  detail::StridedLayout<4> layout;
  const bool* condition;
  Operand<T> a, b;
  T* y;
  __device__ void operator()(int64_t i) const {
    const auto at = layout.offsets(i);
    y[at[0]] = condition[at[1]] ? a[at[2]] : b[at[3]];
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
        map<T>("unary", UnaryOp<which, C>{detail::element<C>(p), detail::element<C>(q)}, y, x);
      });
    }
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  visit_dtype(y.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError("binary: no arithmetic on dtype bool");
    } else {
      using C = opmath_t<T>;
      visit_op<T, Binary::count>(
          op, [&]<Binary which>() { map<T>("binary", BinaryOp<which, C>{detail::element<C>(p)}, y, a, b); });
    }
  });
}

void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Launch launch("compare", y, {in_memory(a, y), in_memory(b, y)});
  const auto layout = detail::strided_layout(y, a, b);
  visit_dtype(a.dtype(), [&]<class T>(T) {
    for_each_index(launch, layout.numel,
                   Compare<T>{layout, op, operand<T>(a, y), operand<T>(b, y), detail::mutable_ptr<bool>(y)});
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Launch launch("where", y, {&condition, in_memory(a, y), in_memory(b, y)});
  const auto layout = detail::strided_layout(y, condition, a, b);
  visit_bits(y.dtype(), [&]<class T>(T) {
    for_each_index(launch, layout.numel,
                   Choose<T>{layout, detail::ptr<bool>(condition), operand<T>(a, y), operand<T>(b, y),
                             detail::mutable_ptr<T>(y)});
  });
}

}  // namespace vox::cuda

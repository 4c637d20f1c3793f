#include <type_traits>

#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/elementwise.cuh>

// Elementwise ops: a functor each, mapped over the elements by elementwise.cuh. Plain CUDA math, no fast
// variants.

namespace vox::cuda {

namespace {

// ---- One operand ------------------------------------------------------------------------------------------

template <class T>
__device__ bool is_negative(T v) {
  if constexpr (std::is_unsigned_v<T>)
    return false;
  else
    return v < T(0);
}

template <class T>
struct Neg {
  __device__ T operator()(T v) const { return -v; }
};
template <class T>
struct WrappingNeg {  // of the words of an integer type
  __device__ T operator()(T v) const { return static_cast<T>(T(0) - v); }
};
template <class T>
struct Abs {
  __device__ T operator()(T v) const { return ::fabs(v); }
};
template <class T>
struct WrappingAbs {
  __device__ T operator()(T v) const {
    using Word = std::make_unsigned_t<T>;
    return is_negative(v) ? static_cast<T>(Word(0) - static_cast<Word>(v)) : v;
  }
};
template <class T>
struct Sign {
  __device__ T operator()(T v) const { return v > T(0) ? T(1) : is_negative(v) ? T(-1) : v; }
};
template <class T>
struct Relu {
  __device__ T operator()(T v) const { return is_negative(v) ? T(0) : v; }
};
template <class T>
struct Clamp {
  T low, high;
  __device__ T operator()(T v) const { return v < low ? low : v > high ? high : v; }
};
template <class T>
struct Exp {
  __device__ T operator()(T v) const { return ::exp(v); }
};
template <class T>
struct Log {
  __device__ T operator()(T v) const { return ::log(v); }
};
template <class T>
struct Sqrt {
  __device__ T operator()(T v) const { return ::sqrt(v); }
};
template <class T>
struct Rsqrt {
  __device__ T operator()(T v) const { return T(1) / ::sqrt(v); }
};
template <class T>
struct Erf {
  __device__ T operator()(T v) const { return ::erf(v); }
};
template <class T>
struct Tanh {
  __device__ T operator()(T v) const { return ::tanh(v); }
};
template <class T>
struct Sigmoid {
  __device__ T operator()(T v) const { return T(1) / (T(1) + ::exp(-v)); }
};
template <class T>
struct LeakyRelu {
  T slope;
  __device__ T operator()(T v) const { return is_negative(v) ? slope * v : v; }
};
template <class T>
struct Gelu {  // 1 + erf(z) is erfc(-z), which does not cancel for negative z
  __device__ T operator()(T v) const { return T(0.5) * v * ::erfc(v * T(-0.70710678118654752440)); }
};
template <class T>
struct Silu {
  __device__ T operator()(T v) const { return v / (T(1) + ::exp(-v)); }
};

/// Ops of all arithmetic dtypes but neg and abs.
template <class T>
void map_arithmetic(Unary op, const Tensor& x, const Tensor& y, opmath_t<T> p, opmath_t<T> q) {
  switch (op) {
    case Unary::sign:
      return map<T>("sign", Sign<opmath_t<T>>{}, x, y);
    case Unary::relu:
      return map<T>("relu", Relu<opmath_t<T>>{}, x, y);
    case Unary::clamp:
      return map<T>("clamp", Clamp<opmath_t<T>>{p, q}, x, y);
    default:
      throw DTypeError("unary: this op has no kernel for integers");
  }
}

template <class T>
void map_integers(Unary op, const Tensor& x, const Tensor& y, opmath_t<T> p, opmath_t<T> q) {
  using Word = std::make_unsigned_t<T>;
  switch (op) {
    case Unary::neg:
      return map<Word>("neg", WrappingNeg<Word>{}, x, y);
    case Unary::abs:
      return map<T>("abs", WrappingAbs<T>{}, x, y);
    default:
      return map_arithmetic<T>(op, x, y, p, q);
  }
}

template <class T>
void map_floating(Unary op, const Tensor& x, const Tensor& y, opmath_t<T> p, opmath_t<T> q) {
  using C = opmath_t<T>;
  switch (op) {
    case Unary::neg:
      return map<T>("neg", Neg<C>{}, x, y);
    case Unary::abs:
      return map<T>("abs", Abs<C>{}, x, y);
    case Unary::exp:
      return map<T>("exp", Exp<C>{}, x, y);
    case Unary::log:
      return map<T>("log", Log<C>{}, x, y);
    case Unary::sqrt:
      return map<T>("sqrt", Sqrt<C>{}, x, y);
    case Unary::rsqrt:
      return map<T>("rsqrt", Rsqrt<C>{}, x, y);
    case Unary::erf:
      return map<T>("erf", Erf<C>{}, x, y);
    case Unary::tanh:
      return map<T>("tanh", Tanh<C>{}, x, y);
    case Unary::sigmoid:
      return map<T>("sigmoid", Sigmoid<C>{}, x, y);
    case Unary::leaky_relu:
      return map<T>("leaky_relu", LeakyRelu<C>{p}, x, y);
    case Unary::gelu:
      return map<T>("gelu", Gelu<C>{}, x, y);
    case Unary::silu:
      return map<T>("silu", Silu<C>{}, x, y);
    default:
      return map_arithmetic<T>(op, x, y, p, q);
  }
}

// ---- Two operands -----------------------------------------------------------------------------------------

template <class T>
struct Add {
  __device__ T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct Sub {
  __device__ T operator()(T a, T b) const { return a - b; }
};
template <class T>
struct Mul {
  __device__ T operator()(T a, T b) const { return a * b; }
};
template <class T>
struct AddScaled {
  T scale;
  __device__ T operator()(T a, T b) const { return a + scale * b; }
};
template <class T>
struct Div {
  __device__ T operator()(T a, T b) const { return a / b; }
};
template <class T>
struct Pow {
  // CUDA's pow is some ulp off even for the exponents 1 and 2, where the C library is exact.
  __device__ T operator()(T a, T b) const { return b == T(1) ? a : b == T(2) ? a * a : ::pow(a, b); }
};
template <class T>
struct Maximum {  // a NaN in a fails the comparison, one in b is asked for
  __device__ T operator()(T a, T b) const { return a < b || b != b ? b : a; }
};
template <class T>
struct Minimum {
  __device__ T operator()(T a, T b) const { return a > b || b != b ? b : a; }
};

/// Ops that wrap around on unsigned integers.
template <class T>
void map_ring(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, opmath_t<T> p) {
  switch (op) {
    case Binary::add:
      return map<T>("add", Add<opmath_t<T>>{}, a, b, y);
    case Binary::sub:
      return map<T>("sub", Sub<opmath_t<T>>{}, a, b, y);
    case Binary::mul:
      return map<T>("mul", Mul<opmath_t<T>>{}, a, b, y);
    case Binary::add_scaled:
      return map<T>("add", AddScaled<opmath_t<T>>{p}, a, b, y);
    default:
      throw DTypeError("binary: this op has no kernel for integers");
  }
}

template <class T>
void map_any(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, opmath_t<T> p) {
  if (op == Binary::maximum) return map<T>("maximum", Maximum<opmath_t<T>>{}, a, b, y);
  if (op == Binary::minimum) return map<T>("minimum", Minimum<opmath_t<T>>{}, a, b, y);
  if constexpr (is_floating_v<T>) {
    if (op == Binary::div) return map<T>("div", Div<opmath_t<T>>{}, a, b, y);
    if (op == Binary::pow) return map<T>("pow", Pow<opmath_t<T>>{}, a, b, y);
    map_ring<T>(op, a, b, y, p);
  } else {
    map_ring<std::make_unsigned_t<T>>(op, a, b, y, static_cast<std::make_unsigned_t<T>>(p));
  }
}

// ---- Comparisons and choices, a thread per element --------------------------------------------------------

template <class T>
struct Compare {
  detail::StridedLayout<3> layout;
  Comparison op;  // the same for all threads: it costs no divergence, and saves five kernels a dtype
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

// ---- The entries of ops/kernels.h -------------------------------------------------------------

void unary(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q) {
  visit_dtype(x.dtype(), [&]<class T>(T) {
    if constexpr (is_floating_v<T>)
      map_floating<T>(op, x, y, detail::element<opmath_t<T>>(p), detail::element<opmath_t<T>>(q));
    else if constexpr (!std::is_same_v<T, bool>)
      map_integers<T>(op, x, y, detail::element<T>(p), detail::element<T>(q));
    else
      throw DTypeError("unary: no arithmetic on dtype bool");
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  visit_dtype(y.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>)
      throw DTypeError("binary: no arithmetic on dtype bool");
    else
      map_any<T>(op, a, b, y, detail::element<opmath_t<T>>(p));
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

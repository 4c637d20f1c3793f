#include <type_traits>

#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/map.cuh>

// Ops of one operand: a functor each, mapped over the elements by map.cuh. Plain CUDA math, no fast variants.

namespace vox::cuda {
namespace {

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

}  // namespace

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

}  // namespace vox::cuda

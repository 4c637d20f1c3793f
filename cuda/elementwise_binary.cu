#include <type_traits>

#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/map.cuh>

// Ops of two operands: a functor each, mapped over the elements by map.cuh.

namespace vox::cuda {
namespace {

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

}  // namespace

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  visit_dtype(y.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>)
      throw DTypeError("binary: no arithmetic on dtype bool");
    else
      map_any<T>(op, a, b, y, detail::element<opmath_t<T>>(p));
  });
}

}  // namespace vox::cuda

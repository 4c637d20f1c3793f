#include <voxgrad/core/dtype.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/rows.cuh>

#include <limits>

// softmax and log_softmax as formulas of Note [Rows]. With m the maximum of a row and s the sum of exp(x -
// m):
//
//   softmax       y = exp(x - m) / s      grad_x = y * (g - sum of g * y)
//   log_softmax   y = x - m - log(s)      grad_x = g - exp(y) * sum of g
//
// m and s are found in one pass: s is multiplied by exp(m - x) when x replaces m. m begins with the lowest
// number rather than -inf, which would give the NaN of inf - inf; so a row of -inf alone ends with s = 0 and
// becomes NaN.

namespace vox::cuda {
namespace {

/// exp(x) for x <= 0. The fast instruction is exact enough where the result is rounded to 16 bits.
template <class T>
__device__ opmath_t<T> exponential(opmath_t<T> x) {
  if constexpr (is_16_bit_v<T>)
    return __expf(x);
  else
    return ::exp(x);
}

template <class Element>
struct SoftmaxRows {
  using T = Element;
  using A = opmath_t<T>;
  using Cell = Nothing;
  static constexpr bool sums = true, maps = true;

  __device__ Cell cell(int64_t, int64_t) const { return {}; }
  template <int n>
  __device__ void cells(int64_t, int64_t, int, Cell (&)[n]) const {}
};

template <class Element, bool logarithm>
struct Softmax : SoftmaxRows<Element> {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr int inputs = 1;
  const T* x[1];
  T* y;

  struct Acc {
    A max, sum;
  };
  using Sum = Acc;
  static __device__ Acc none() { return {std::numeric_limits<A>::lowest(), 0}; }
  __device__ Sum start(int64_t, const A (&)[1]) const { return none(); }
  __device__ void add(Sum& s, Nothing, const A (&v)[1]) const {
    const A above = v[0] - s.max, e = exponential<T>(above > 0 ? -above : above);  // a NaN reaches the sum
    s.sum = above > 0 ? s.sum * e + 1 : s.sum + e;
    s.max = above > 0 ? v[0] : s.max;
  }
  static __device__ Acc close(const Sum& s, int64_t) { return s; }
  static __device__ Acc combine(Acc a, Acc b) {
    const A above = b.max - a.max;  // NaN if both are inf
    const A e = exponential<T>(above > 0 ? -above : above);
    return above > 0 ? Acc{b.max, a.sum * e + b.sum} : Acc{a.max, a.sum + b.sum * e};
  }

  struct Row {
    A max, sum;  // its reciprocal, or its logarithm
  };
  __device__ Row finish(int64_t, const Acc& a, bool) const {
    const A sum = a.max == std::numeric_limits<A>::infinity() ? a.max - a.max : a.sum;  // NaN
    return {a.max, logarithm ? ::log(sum) : A(1) / sum};
  }
  __device__ A map(const Row& r, Nothing, const A (&v)[1]) const {
    if constexpr (logarithm)
      return v[0] - r.max - r.sum;
    else
      return exponential<T>(v[0] - r.max) * r.sum;
  }
};

template <class Element, bool logarithm>
struct SoftmaxGradient : SoftmaxRows<Element> {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr int inputs = 2;
  const T* x[2];  // g and y
  T* y;           // grad_x

  using Acc = A;
  using Sum = A;
  using Row = A;
  static __device__ A none() { return 0; }
  __device__ A start(int64_t, const A (&)[2]) const { return 0; }
  __device__ void add(A& sum, Nothing, const A (&v)[2]) const { sum += logarithm ? v[0] : v[0] * v[1]; }
  static __device__ A close(A sum, int64_t) { return sum; }
  static __device__ A combine(A a, A b) { return a + b; }
  __device__ A finish(int64_t, A sum, bool) const { return sum; }
  __device__ A map(A sum, Nothing, const A (&v)[2]) const {
    if constexpr (logarithm)
      return v[0] - exponential<T>(v[1]) * sum;
    else
      return v[1] * (v[0] - sum);
  }
};

template <class F>
void map_along(const Launch& launch, const F& f, const AxisView& view) {
  if (view.inner == 1)
    map_rows(launch, f, ContiguousRows{1, view.outer, view.axis});
  else
    map_rows(launch, f, StridedRows{view.outer, view.axis, view.inner});
}

/// Long strided rows keep too few threads busy if they are few, and one thread's sum too inexact if they are
/// very long.
bool needs_transpose(const AxisView& view) {
  return view.inner > 1 && view.axis > 64 && (view.axis > 4096 || view.outer * view.inner < 65536);
}
Tensor transposed(const Tensor& x, int64_t dim) {
  const Tensor view = x.transpose(dim, -1), dense = empty(view.shape(), view.options());
  copy(view, dense);
  return dense;
}

}  // namespace

void softmax(const Tensor& x, int64_t dim, bool logarithm, Tensor& y) {
  const AxisView view(x.shape(), dim);
  if (needs_transpose(view)) {
    const Tensor from = transposed(x, dim);
    Tensor to = empty_like(from);
    softmax(from, x.rank() - 1, logarithm, to);
    return copy(to.transpose(dim, -1), y);
  }
  const Launch launch("softmax", y, {&x});
  visit_floating_storage("softmax", x.dtype(), [&]<class T>(T) {
    const auto run = [&]<bool log>() {
      map_along(launch, Softmax<T, log>{{}, {detail::ptr<T>(x)}, detail::mutable_ptr<T>(y)}, view);
    };
    logarithm ? run.template operator()<true>() : run.template operator()<false>();
  });
}

void softmax_gradient(const Tensor& grad_y, const Tensor& y, int64_t dim, bool logarithm, Tensor& grad_x) {
  const AxisView view(y.shape(), dim);
  if (needs_transpose(view)) {
    const Tensor g = transposed(grad_y, dim), from = transposed(y, dim);
    Tensor to = empty_like(from);
    softmax_gradient(g, from, y.rank() - 1, logarithm, to);
    return copy(to.transpose(dim, -1), grad_x);
  }
  const Launch launch("softmax_gradient", grad_x, {&grad_y, &y});
  visit_floating_storage("softmax_gradient", y.dtype(), [&]<class T>(T) {
    const auto run = [&]<bool log>() {
      map_along(launch,
                SoftmaxGradient<T, log>{
                    {}, {detail::ptr<T>(grad_y), detail::ptr<T>(y)}, detail::mutable_ptr<T>(grad_x)},
                view);
    };
    logarithm ? run.template operator()<true>() : run.template operator()<false>();
  });
}

}  // namespace vox::cuda

#include <voxgrad/core/dtype.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/exponential.cuh>
#include <voxgrad/cuda/rows.cuh>

#include <limits>

// softmax, log_softmax and cross entropy as formulas of Note [Rows]. With m the maximum of a row and s the
// sum of exp(x - m):
//
//   softmax       y = exp(x - m) / s      grad_x = y * (g - sum of g * y)
//   log_softmax   y = x - m - log(s)      grad_x = g - exp(y) * sum of g
//
// m and s are found in one pass, some neighbours at a time: first m rises to their maximum m', then s is
// multiplied by exp(m - m'), and then the neighbours are added. m begins with the lowest number rather than
// -inf, which would give the NaN of inf - inf; so a row of -inf alone ends with s = 0 and becomes NaN.

namespace vox::cuda {
namespace {

/// m and s of some elements.
template <class T>
struct Exponentials {
  using A = opmath_t<T>;
  A max, sum;

  static __device__ Exponentials none() { return {std::numeric_limits<A>::lowest(), 0}; }
  /// Adds n neighbours.
  template <int size>
  __device__ void add(const A (&v)[size][1], int n) {
    const A before = max;
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j < n) max = ::max(max, v[j][0]);  // the other operand of a NaN, which reaches the sum
    }
    A added = 0;
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j < n) added += flushed_exponential<T>(v[j][0] - max);
    }
    sum = ::fma(sum, flushed_exponential<T>(before - max), added);
  }
  static __device__ Exponentials combine(Exponentials a, Exponentials b) {
    const A above = b.max - a.max;  // NaN if both are inf
    const A e = flushed_exponential<T>(above > 0 ? -above : above);
    return above > 0 ? Exponentials{b.max, a.sum * e + b.sum} : Exponentials{a.max, a.sum + b.sum * e};
  }
  /// s, and NaN if m is infinite.
  __device__ A total() const { return max == std::numeric_limits<A>::infinity() ? max - max : sum; }
};

/// `logarithm` is known at run time only: a packet takes one branch for it.
template <class Element>
struct Softmax {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr int inputs = 1;
  static constexpr bool sums = true, maps = true, pieces = false;
  const T* x[1];
  T* y;
  bool logarithm;

  using Acc = Exponentials<T>;
  using Sum = Acc;
  static __device__ Acc none() { return Acc::none(); }
  __device__ Sum start(int64_t, const A (&)[1]) const { return none(); }
  template <bool, int size>
  __device__ void add(Sum& s, int64_t, const A (&v)[size][1], int n) const {
    s.add(v, n);
  }
  static __device__ Acc close(const Sum& s, int64_t) { return s; }
  static __device__ Acc combine(Acc a, Acc b) { return Acc::combine(a, b); }

  struct Row {
    A max, sum;  // its reciprocal, or its logarithm
  };
  __device__ Row finish(int64_t, const Acc& a, bool) const {
    return {a.max, logarithm ? ::log(a.total()) : A(1) / a.total()};
  }
  template <bool, int size>
  __device__ void map(const Row& r, int64_t, const A (&v)[size][1], int, A (&out)[size]) const {
    if (logarithm) {
#pragma unroll
      for (int j = 0; j < size; ++j) out[j] = v[j][0] - r.max - r.sum;
    } else {
#pragma unroll
      for (int j = 0; j < size; ++j) out[j] = flushed_exponential<T>(v[j][0] - r.max) * r.sum;
    }
  }
};

template <class Element>
struct SoftmaxGradient {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr int inputs = 2;
  static constexpr bool sums = true, maps = true, pieces = false;
  const T* x[2];  // g and y
  T* y;           // grad_x
  bool logarithm;

  using Acc = A;
  using Sum = A;
  using Row = A;
  static __device__ A none() { return 0; }
  __device__ A start(int64_t, const A (&)[2]) const { return 0; }
  template <bool, int size>
  __device__ void add(A& sum, int64_t, const A (&v)[size][2], int n) const {
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j < n) sum = ::fma(v[j][0], logarithm ? A(1) : v[j][1], sum);
    }
  }
  static __device__ A close(A sum, int64_t) { return sum; }
  static __device__ A combine(A a, A b) { return a + b; }
  __device__ A finish(int64_t, A sum, bool) const { return sum; }
  template <bool, int size>
  __device__ void map(A sum, int64_t, const A (&v)[size][2], int, A (&out)[size]) const {
    if (logarithm) {
#pragma unroll
      for (int j = 0; j < size; ++j) out[j] = v[j][0] - flushed_exponential<T>(v[j][1]) * sum;
    } else {
#pragma unroll
      for (int j = 0; j < size; ++j) out[j] = v[j][1] * (v[j][0] - sum);
    }
  }
};

/// The loss of cross entropy (CrossEntropyKernel), which finish() stores; or, if `gradient`, the gradient of
/// x. A sum of two products is an explicit fma: the compiler might fuse either product, another one in each
/// form of the loops.
template <class Element, bool gradient>
struct CrossEntropy {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr int inputs = 1;
  static constexpr bool sums = true, maps = gradient, pieces = false;
  const T* x[1];
  T* y;  // grad_x
  const int64_t* target;
  const A* weight;  // or null
  int64_t classes, ignore_index;
  A certain, shared;  // 1 - smoothing, and smoothing / classes
  // Of the gradient: one factor for all rows if the step is 0.
  const A* scale;
  int64_t scale_step;
  // Of the loss; row_weight may be null.
  A *loss, *row_weight;

  __device__ A weight_of(int64_t c) const { return weight ? weight[c] : A(1); }
  /// Which of n classes from l on is the target; none of them if that is another one.
  static __device__ int place(int64_t target, int64_t l, int n) {
    return static_cast<uint64_t>(target - l) < static_cast<uint64_t>(n) ? static_cast<int>(target - l) : -1;
  }

  struct Acc {
    Exponentials<T> exponentials;
    A at_target;        // x of the target's class
    A scores, weights;  // of label smoothing: sum of weight * (x - m), and of weight

    /// Refers the scores to another m.
    __device__ A scores_for(A max) const {
      return weights == 0 ? A(0) : scores + weights * (exponentials.max - max);
    }
  };
  struct Sum {
    Acc acc;
    int64_t target;
  };
  static __device__ Acc none() { return {Exponentials<T>::none(), 0, 0, 0}; }
  __device__ Sum start(int64_t row, const A (&)[1]) const { return {none(), target[row]}; }
  template <bool, int size>
  __device__ void add(Sum& s, int64_t l, const A (&v)[size][1], int n) const {
    Acc& a = s.acc;
    const Acc before = a;
    a.exponentials.add(v, n);
    const int at_target = gradient ? -1 : place(s.target, l, n);
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j == at_target) a.at_target = v[j][0];
    }
    if (shared == 0) return;
    const A max = a.exponentials.max;
    if (!gradient) a.scores = before.scores_for(max);
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j >= n) break;
      const A w = weight_of(l + j);
      if (!gradient) a.scores += w * (v[j][0] - max);
      a.weights += w;
    }
  }
  static __device__ Acc close(const Sum& s, int64_t) { return s.acc; }
  static __device__ Acc combine(const Acc& a, const Acc& b) {
    const auto both = Exponentials<T>::combine(a.exponentials, b.exponentials);
    return {both, a.at_target + b.at_target, a.scores_for(both.max) + b.scores_for(both.max),
            a.weights + b.weights};
  }

  struct Row {
    A max, factor, shared, certain;
    int64_t target;
  };
  __device__ Row finish(int64_t row, const Acc& a, bool writes) const {
    const int64_t t = target[row];
    const bool known = t >= 0 && t < classes, counts = known && t != ignore_index;
    const A w = counts ? weight_of(t) : A(0), max = a.exponentials.max;
    if constexpr (gradient) {
      const A s = counts ? scale[row * scale_step] : A(0);
      return {max, s * ::fma(shared, a.weights, certain * w) / a.exponentials.total(), s * shared,
              s * certain * w, t};
    } else {
      const A log = ::log(a.exponentials.total());
      A y = known || t == ignore_index ? A(0) : std::numeric_limits<A>::quiet_NaN();
      if (counts && certain != 0) y = certain * w * (log - (a.at_target - max));
      if (counts && shared != 0) y += shared * (a.weights * log - a.scores);
      if (writes) loss[row] = y;
      if (writes && row_weight) row_weight[row] = w;
      return {};
    }
  }
  template <bool, int size>
  __device__ void map(const Row& r, int64_t l, const A (&v)[size][1], int n, A (&out)[size]) const {
    const int at_target = place(r.target, l, n);
#pragma unroll
    for (int j = 0; j < size; ++j) {
      A g = flushed_exponential<T>(v[j][0] - r.max) * r.factor;
      if (shared != 0 && j < n) g = ::fma(-r.shared, weight_of(l + j), g);
      out[j] = j == at_target ? g - r.certain : g;
    }
  }
};

/// The formula, as far as the loss and the gradient share it.
template <class T, bool gradient>
CrossEntropy<T, gradient> cross_entropy_of(const Tensor& x, const Tensor& target, const Tensor& weight,
                                           const CrossEntropyTerms& terms, int64_t classes) {
  using A = opmath_t<T>;
  CrossEntropy<T, gradient> f{};
  f.x[0] = detail::ptr<T>(x);
  f.target = detail::ptr<int64_t>(target);
  f.weight = detail::ptr_or_null<A>(weight);
  f.classes = classes;
  f.ignore_index = terms.ignore_index;
  f.certain = static_cast<A>(1 - terms.smoothing);
  f.shared = static_cast<A>(terms.smoothing / static_cast<double>(classes));
  return f;
}

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
    map_along(launch, Softmax<T>{{detail::ptr<T>(x)}, detail::mutable_ptr<T>(y), logarithm}, view);
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
    map_along(launch,
              SoftmaxGradient<T>{
                  {detail::ptr<T>(grad_y), detail::ptr<T>(y)}, detail::mutable_ptr<T>(grad_x), logarithm},
              view);
  });
}

void cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, CrossEntropyTerms terms,
                   Tensor& loss, Tensor& row_weight) {
  const AxisView view(x.shape(), 1);
  const Launch launch("cross_entropy", loss, {&x, &target, &weight, &row_weight});
  visit_floating_storage("cross_entropy", x.dtype(), [&]<class T>(T) {
    using A = opmath_t<T>;
    auto f = cross_entropy_of<T, false>(x, target, weight, terms, view.axis);
    f.loss = detail::mutable_ptr<A>(loss);
    if (row_weight.defined()) f.row_weight = detail::mutable_ptr<A>(row_weight);
    map_along(launch, f, view);
  });
}

void cross_entropy_gradient(const Tensor& scale, const Tensor& x, const Tensor& target, const Tensor& weight,
                            CrossEntropyTerms terms, Tensor& grad_x) {
  const AxisView view(x.shape(), 1);
  if (needs_transpose(view)) {
    const Tensor from = transposed(x.reshape({view.outer, view.axis, view.inner}), 1);
    Tensor to = empty_like(from);
    cross_entropy_gradient(scale, from.reshape({view.outer * view.inner, view.axis}), target, weight, terms,
                           to);
    return copy(to.transpose(1, 2).reshape(x.shape()), grad_x);
  }
  const Launch launch("cross_entropy", grad_x, {&scale, &x, &target, &weight});
  visit_floating_storage("cross_entropy", x.dtype(), [&]<class T>(T) {
    auto f = cross_entropy_of<T, true>(x, target, weight, terms, view.axis);
    f.y = detail::mutable_ptr<T>(grad_x);
    f.scale = detail::ptr<opmath_t<T>>(scale);
    f.scale_step = scale.numel() > 1;
    map_along(launch, f, view);
  });
}

}  // namespace vox::cuda

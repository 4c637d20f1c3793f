#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/elementwise.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <type_traits>

// softmax, log_softmax and cross entropy of f32 and f64. A task is one row whose elements are dense, or up to
// 512 neighbouring rows whose elements are strided: either fits a cache, so that memory is read and written
// once. Both consist of dense runs: parts of the one row, or one element of each of the rows.

namespace vox::cpu {
namespace {

constexpr ByIsa elementwise = VOX_BY_ISA(elementwise_kernels);
constexpr ByIsa reductions = VOX_BY_ISA(reduce_kernels);

constexpr int64_t run_elements = 512;

/// The rows of one task: `count` runs, `stride` apart, of `width` elements in all but the last.
struct Rows {
  int64_t first, stride, count, width, last_width;
  bool is_one;  // row; else a run has an element of each row
  int64_t row;  // the number of the first row

  int64_t number() const { return is_one ? 1 : width; }
  /// The index within its row of the first element of the run at an offset.
  int64_t element(int64_t at) const { return is_one ? at - first : (at - first) / stride; }

  /// Calls f(offset, elements) for each run.
  template <class F>
  void for_runs(F f) const {
    for (int64_t i = 0; i < count; ++i) f(first + i * stride, i + 1 < count ? width : last_width);
  }
};

/// Calls f(rows) for all rows, from several threads.
template <class F>
void for_rows(const AxisView& v, F f) {
  const bool dense = v.inner == 1;
  const int64_t width = std::min(run_elements, dense ? v.axis : v.inner);
  const int64_t strips = dense ? 1 : (v.inner + width - 1) / width;
  for_tasks(v.outer * strips, 1 + 16384 / (v.axis * (dense ? 1 : width)), [&](int64_t task) {
    const int64_t outer = task / strips, at = task % strips * width, first = outer * v.axis * v.inner + at;
    const int64_t runs = (v.axis + width - 1) / width, strip = std::min(width, v.inner - at);
    f(dense ? Rows{first, width, runs, width, v.axis - (runs - 1) * width, true, outer}
            : Rows{first, v.inner, v.axis, strip, strip, false, outer * v.inner + at});
  });
}

/// One number per row of a task, and the arithmetic of runs with them.
template <class T>
struct PerRow {
  const Rows& rows;
  T value[run_elements] = {};
  T recent[run_elements] = {};  // sums of up to 256 runs, so that the sum of a long row stays exact enough
  int64_t added = 0;

  static void apply(Binary op, const T* a, int64_t a_step, const T* b, int64_t b_step, T* y, int64_t n) {
    elementwise.of<T>().binary[static_cast<int>(op)](a, a_step, b, b_step, y, n, T(0), T(0), false);
  }
  /// y = op(x, value)
  void apply_to(Binary op, const T* x, T* y, int64_t n) const { apply(op, x, 1, value, !rows.is_one, y, n); }
  void add(const T* run, int64_t n) {
    if (rows.is_one) {
      value[0] += reductions.of<T>().sum.block(run, n);
    } else {
      apply(Binary::add, recent, 1, run, 1, recent, n);
      if (++added % 256 == 0 || added == rows.count) {
        apply(Binary::add, value, 1, recent, 1, value, n);
        std::fill_n(recent, n, T(0));
      }
    }
  }
  void take_maximum(const T* run, int64_t n) {
    const T largest = rows.is_one ? reductions.of<T>().max.block(run, n) : T(0);
    apply(Binary::maximum, value, 1, rows.is_one ? &largest : run, 1, value, rows.is_one ? 1 : n);
  }
};

template <class T>
void exponential(const T* x, T* y, int64_t n) {
  elementwise.of<T>().unary[static_cast<int>(Unary::exp)](x, y, n, T(0), T(0), false);
}

/// The maximum of each row of x, and the sum of e = exp(x - max). Writes x - max and e where they are wanted.
template <class T>
void exponentials(const T* x, PerRow<T>& max, PerRow<T>& sum, T* shifted, T* e) {
  const Rows& rows = max.rows;
  T buffer[run_elements];
  std::copy_n(x + rows.first, rows.number(), max.value);
  rows.for_runs([&](int64_t at, int64_t n) { max.take_maximum(x + at, n); });
  rows.for_runs([&](int64_t at, int64_t n) {
    T *const difference = shifted ? shifted + at : buffer, *const power = e ? e + at : buffer;
    max.apply_to(Binary::sub, x + at, difference, n);
    exponential(difference, power, n);
    sum.add(power, n);
  });
}

template <class T>
void take_logarithm(PerRow<T>& x) {
  elementwise.of<T>().unary[static_cast<int>(Unary::log)](x.value, x.value, x.rows.number(), T(0), T(0),
                                                          false);
}

}  // namespace

void softmax(const Tensor& x_tensor, int64_t dim, bool logarithm, Tensor& y_tensor) {
  visit_floating("softmax", x_tensor.dtype(), [&]<class T>(T) {
    const T* const x = detail::ptr<T>(x_tensor);
    T* const y = detail::mutable_ptr<T>(y_tensor);
    for_rows(AxisView(x_tensor.shape(), dim), [=](const Rows& rows) {
      PerRow<T> max{rows}, sum{rows};
      exponentials(x, max, sum, logarithm ? y : nullptr, logarithm ? nullptr : y);
      if (logarithm) take_logarithm(sum);
      rows.for_runs([&](int64_t at, int64_t n) {
        sum.apply_to(logarithm ? Binary::sub : Binary::div, y + at, y + at, n);
      });
    });
  });
}

void softmax_gradient(const Tensor& grad_y, const Tensor& y_tensor, int64_t dim, bool logarithm,
                      Tensor& grad_x) {
  visit_floating("softmax_gradient", y_tensor.dtype(), [&]<class T>(T) {
    const T *const g = detail::ptr<T>(grad_y), *const y = detail::ptr<T>(y_tensor);
    T* const to = detail::mutable_ptr<T>(grad_x);
    for_rows(AxisView(y_tensor.shape(), dim), [=](const Rows& rows) {
      PerRow<T> sum{rows};
      T buffer[run_elements];
      rows.for_runs([&](int64_t at, int64_t n) {
        if (!logarithm) sum.apply(Binary::mul, g + at, 1, y + at, 1, buffer, n);
        sum.add(logarithm ? g + at : buffer, n);
      });
      rows.for_runs([&](int64_t at, int64_t n) {
        if (logarithm) {
          exponential(y + at, buffer, n);
          sum.apply_to(Binary::mul, buffer, buffer, n);
          sum.apply(Binary::sub, g + at, 1, buffer, 1, to + at, n);
        } else {
          sum.apply_to(Binary::sub, g + at, buffer, n);
          sum.apply(Binary::mul, buffer, 1, y + at, 1, to + at, n);
        }
      });
    });
  });
}

// ---- Cross entropy ----------------------------------------------------------------------------------------

namespace {

/// What the rows of x are compared with.
template <class T>
struct Targets {
  AxisView view;
  const int64_t* target;
  const Tensor weights;
  const T* weight;
  T all_weights;      // their sum
  T certain, shared;  // 1 - smoothing, and smoothing / classes
  int64_t ignore_index;

  Targets(const Tensor& x, const Tensor& t, const Tensor& w, const CrossEntropyTerms& terms)
      : view(x.shape(), 1),
        target(detail::ptr<int64_t>(t)),
        weights(w.defined() ? w : full({view.axis}, 1, x.options())),
        weight(detail::ptr<T>(weights)),
        all_weights(terms.smoothing != 0 ? std::accumulate(weight, weight + view.axis, T(0)) : T(0)),
        certain(static_cast<T>(1 - terms.smoothing)),
        shared(static_cast<T>(terms.smoothing / static_cast<double>(view.axis))),
        ignore_index(terms.ignore_index) {
    check_classes(t);
  }

  bool counts(int64_t row) const { return target[row] != ignore_index; }
  /// For each row the weight of its class, and the offset of that class's element; 0, and that of class 0, if
  /// the row does not count.
  void look_up(const Rows& rows, T* weight_of, int64_t* place) const {
    const int64_t* const t = target + rows.row;
    const int64_t class_step = rows.is_one ? 1 : rows.stride, ignored = ignore_index;
    const T* const w = weight;
    for (int64_t i = 0; i < rows.number(); ++i) {
      const int64_t c = t[i] == ignored ? 0 : t[i];
      weight_of[i] = t[i] == ignored ? T(0) : w[c];
      place[i] = rows.first + i + c * class_step;
    }
  }

  /// y = x * (the weight of the class), for the run at an offset.
  void weigh(const Rows& rows, int64_t at, const T* x, int64_t x_step, T* y, int64_t n) const {
    PerRow<T>::apply(Binary::mul, x, x_step, weight + rows.element(at), rows.is_one, y, n);
  }

 private:
  void check_classes(const Tensor& t) const {
    constexpr int64_t none = std::numeric_limits<int64_t>::max();
    std::atomic<int64_t> first = none;
    const int64_t rows = view.outer * view.inner;
    parallel_for(rows, 1 << 16, [&](int64_t begin, int64_t end) {
      const auto bad = [&](int64_t c) { return (c < 0 || c >= view.axis) && c != ignore_index; };
      const int64_t at = std::find_if(target + begin, target + end, bad) - target;
      for (int64_t known = first; at < end && at < known && !first.compare_exchange_weak(known, at);) {
      }
    });
    check<ValueError>(first == none, "cross_entropy: target ", t.shape(), " holds class ",
                      first == none ? 0 : target[first], " at element ", first.load(), "; allowed are 0 to ",
                      view.axis - 1, " and ignore_index = ", ignore_index);
  }
};

}  // namespace

void cross_entropy(const Tensor& x_tensor, const Tensor& target, const Tensor& weight,
                   CrossEntropyTerms terms, Tensor& loss_tensor, Tensor& row_weight) {
  visit_floating("cross_entropy", x_tensor.dtype(), [&]<class T>(T) {
    const Targets<T> q(x_tensor, target, weight, terms);
    const T* const x = detail::ptr<T>(x_tensor);
    T* const loss = detail::mutable_ptr<T>(loss_tensor);
    T* const of_row = row_weight.defined() ? detail::mutable_ptr<T>(row_weight) : nullptr;
    for_rows(q.view, [=, &q](const Rows& rows) {
      PerRow<T> max{rows}, logarithm{rows}, scores{rows};  // scores: sum of weight * (x - max)
      exponentials<T>(x, max, logarithm, nullptr, nullptr);
      take_logarithm(logarithm);
      if (q.shared != 0) {
        T buffer[run_elements];
        rows.for_runs([&](int64_t at, int64_t n) {
          max.apply_to(Binary::sub, x + at, buffer, n);
          q.weigh(rows, at, buffer, 1, buffer, n);
          scores.add(buffer, n);
        });
      }
      T w[run_elements];
      int64_t place[run_elements];
      q.look_up(rows, w, place);
      T* const y = loss + rows.row;
      for (int64_t i = 0; i < rows.number(); ++i)
        y[i] = w[i] * (logarithm.value[i] - (x[place[i]] - max.value[i]));
      if (q.shared != 0) {
        for (int64_t i = 0; i < rows.number(); ++i)
          y[i] = q.certain * y[i] + q.shared * (q.all_weights * logarithm.value[i] - scores.value[i]);
      }
      for (int64_t i = 0; i < rows.number(); ++i) {
        if (!q.counts(rows.row + i)) y[i] = 0;
      }
      if (of_row) std::copy_n(w, rows.number(), of_row + rows.row);
    });
  });
}

void cross_entropy_gradient(const Tensor& scale_tensor, const Tensor& x_tensor, const Tensor& target,
                            const Tensor& weight, CrossEntropyTerms terms, Tensor& grad_x) {
  visit_floating("cross_entropy_gradient", x_tensor.dtype(), [&]<class T>(T) {
    const Targets<T> q(x_tensor, target, weight, terms);
    const T *const x = detail::ptr<T>(x_tensor), *const scale = detail::ptr<T>(scale_tensor);
    T* const to = detail::mutable_ptr<T>(grad_x);
    const int64_t scale_step = scale_tensor.numel() > 1;
    for_rows(q.view, [=, &q](const Rows& rows) {
      PerRow<T> max{rows}, factor{rows}, shared{rows};
      exponentials<T>(x, max, factor, nullptr, to);
      T certain[run_elements];
      int64_t place[run_elements];
      q.look_up(rows, certain, place);
      const T* const s = scale + rows.row * scale_step;
      for (int64_t i = 0; i < rows.number(); ++i)  // the scale may be infinite if no row counts
        certain[i] = certain[i] == 0 ? T(0) : certain[i] * (s[i * scale_step] * q.certain);
      for (int64_t i = 0; q.shared != 0 && i < rows.number(); ++i)
        shared.value[i] = q.counts(rows.row + i) ? s[i * scale_step] * q.shared : T(0);
      for (int64_t i = 0; i < rows.number(); ++i)
        factor.value[i] = (certain[i] + shared.value[i] * q.all_weights) / factor.value[i];
      rows.for_runs([&](int64_t at, int64_t n) {
        factor.apply_to(Binary::mul, to + at, to + at, n);
        if (q.shared == 0) return;
        T buffer[run_elements];
        q.weigh(rows, at, shared.value, !rows.is_one, buffer, n);
        PerRow<T>::apply(Binary::sub, to + at, 1, buffer, 1, to + at, n);
      });
      for (int64_t i = 0; i < rows.number(); ++i) to[place[i]] -= certain[i];
    });
  });
}

}  // namespace vox::cpu

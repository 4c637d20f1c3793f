#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/elementwise.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>
#include <type_traits>

// softmax and log_softmax of f32 and f64. A task is one row whose elements are dense, or up to 512
// neighbouring rows whose elements are strided: either fits a cache, so that memory is read and written once.
// Both consist of dense runs: parts of the one row, or one element of each of the rows.

namespace vox::cpu {
namespace {

constexpr ByIsa elementwise = VOX_BY_ISA(elementwise_kernels);
constexpr ByIsa reductions = VOX_BY_ISA(reduce_kernels);

constexpr int64_t run_elements = 512;

/// The rows of one task: `count` runs, `stride` apart, of `width` elements in all but the last.
struct Rows {
  int64_t first, stride, count, width, last_width;
  bool is_one;  // row; else a run has an element of each row

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
  const int64_t grain = 1 + 16384 / (v.axis * (dense ? 1 : width));
  parallel_for(v.outer * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t outer = task / strips, at = task % strips * width, first = outer * v.axis * v.inner + at;
      const int64_t runs = (v.axis + width - 1) / width, strip = std::min(width, v.inner - at);
      f(dense ? Rows{first, width, runs, width, v.axis - (runs - 1) * width, true}
              : Rows{first, v.inner, v.axis, strip, strip, false});
    }
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

}  // namespace

void softmax(const Tensor& x_tensor, int64_t dim, bool logarithm, Tensor& y_tensor) {
  visit_floating("softmax", x_tensor.dtype(), [&]<class T>(T) {
    const T* const x = detail::ptr<T>(x_tensor);
    T* const y = detail::mutable_ptr<T>(y_tensor);
    for_rows(AxisView(x_tensor.shape(), dim), [=](const Rows& rows) {
      PerRow<T> max{rows}, sum{rows};
      T buffer[run_elements];
      std::copy_n(x + rows.first, rows.is_one ? 1 : rows.width, max.value);
      rows.for_runs([&](int64_t at, int64_t n) { max.take_maximum(x + at, n); });
      rows.for_runs([&](int64_t at, int64_t n) {
        T* const e = logarithm ? buffer : y + at;
        max.apply_to(Binary::sub, x + at, y + at, n);
        exponential(y + at, e, n);
        sum.add(e, n);
      });
      if (logarithm) {
        const auto log = elementwise.of<T>().unary[static_cast<int>(Unary::log)];
        log(sum.value, sum.value, rows.is_one ? 1 : rows.width, T(0), T(0), false);
      }
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

}  // namespace vox::cpu

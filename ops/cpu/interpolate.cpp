// One axis of an interpolation and its adjoint, on x as (outer, in, inner) and y as (outer, out, inner).
// One chunk owns whole rows of `inner` elements of what it writes. Both directions gather through the same
// table of taps, so they are exact transposes of each other; per element two reads, one write and at most
// three operations for the forward.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/axis_view.h>
#include <voxgrad/ops/interpolate_kernels.h>

#include <algorithm>
#include <vector>

namespace vox::cpu {

namespace {

template <class T>
struct Tap {
  int64_t index;
  T weight, weight_next;
};

template <class T>
std::vector<Tap<T>> taps(const InterpolateAxis& axis) {
  std::vector<Tap<T>> table;
  table.reserve(static_cast<size_t>(axis.out));
  for (int64_t o = 0; o < axis.out; ++o) {
    const InterpolateTap tap = axis.tap(o);
    const T next = static_cast<T>(tap.weight_next);
    table.push_back({tap.index, T(1) - next, next});
  }
  return table;
}

/// Rows that make a chunk of about 10 microseconds.
int64_t rows_per_chunk(int64_t inner) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, inner)); }

}  // namespace

void interpolate_axis(const Tensor& x, int64_t dim, const InterpolateAxis& axis, Tensor& y) {
  visit_floating("interpolate", y.dtype(), [&]<class T>(T) {
    const AxisView view(y.shape(), dim);
    const int64_t inner = view.inner;
    const auto table = taps<T>(axis);
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);

    parallel_for(view.outer * axis.out, rows_per_chunk(inner), [&](int64_t begin, int64_t end) {
      int64_t outer = begin / axis.out, o = begin % axis.out;
      for (int64_t row = begin; row < end; ++row) {
        const Tap<T>& tap = table[static_cast<size_t>(o)];
        const T* a = from + (outer * axis.in + tap.index) * inner;
        T* out = to + row * inner;
        if (tap.weight_next == 0) {  // so that nothing is read beyond the end, and 0 * inf spoils nothing
          std::copy(a, a + inner, out);
        } else {
          const T* b = a + inner;
          for (int64_t k = 0; k < inner; ++k) out[k] = tap.weight * a[k] + tap.weight_next * b[k];
        }
        if (++o == axis.out) o = 0, ++outer;
      }
    });
  });
}

void interpolate_axis_adjoint(const Tensor& grad_y, int64_t dim, const InterpolateAxis& axis,
                              Tensor& grad_x) {
  visit_floating("interpolate_adjoint", grad_x.dtype(), [&]<class T>(T) {
    const AxisView view(grad_x.shape(), dim);
    const int64_t inner = view.inner;
    const auto table = taps<T>(axis);
    std::vector<int64_t> first(static_cast<size_t>(axis.in + 1));  // first[i]: the first tap on i or beyond
    for (int64_t i = 0; i <= axis.in; ++i) first[static_cast<size_t>(i)] = axis.first_output(i);
    const T* from = detail::ptr<T>(grad_y);
    T* to = detail::mutable_ptr<T>(grad_x);

    parallel_for(view.outer * axis.in, rows_per_chunk(inner), [&](int64_t begin, int64_t end) {
      int64_t outer = begin / axis.in, i = begin % axis.in;
      for (int64_t row = begin; row < end; ++row) {
        T* out = to + row * inner;
        std::fill(out, out + inner, T(0));
        const int64_t last = first[static_cast<size_t>(i + 1)];
        for (int64_t o = first[static_cast<size_t>(std::max<int64_t>(i - 1, 0))]; o < last; ++o) {
          const Tap<T>& tap = table[static_cast<size_t>(o)];
          const T weight = tap.index == i ? tap.weight : tap.weight_next;
          if (weight == 0) continue;
          const T* g = from + (outer * axis.out + o) * inner;
          for (int64_t k = 0; k < inner; ++k) out[k] += weight * g[k];
        }
        if (++i == axis.in) i = 0, ++outer;
      }
    });
  });
}

}  // namespace vox::cpu

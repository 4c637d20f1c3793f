// Interpolation along all three axes at once, and its adjoint:
//
//   y[o]      = the blend along D of the blends along H of the blends along W of the cells that o reads
//   grad_x[i] = the sum over od, by rising od, of the share of i in od * the sum over oh, of the same kind, *
//               the sum over ow * grad_y[od, oh, ow]
//
// A thread owns some consecutive results along D with one (h, w), so it computes what it needs of a slice of
// cells, all (h, w) at one d, once for all results that use it: slices are read by blends from above and
// below, and in the adjoint shared by two cells. Neighbours in a warp are neighbours along W. Each element is
// written once; reads mostly come from cache. The taps of the axes (a division in double each) are computed
// on the device by the code that the CPU runs, once for all threads. Multiplications and additions are joined
// by hand, so that all axes round alike.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/cuda/columns.cuh>
#include <voxgrad/cuda/for_each_index.cuh>

#include <algorithm>

namespace vox::cuda {

namespace {

/// InterpolateTap in the type A that the kernels compute in.
template <class A>
struct Tap {
  int64_t index;
  A next;
  /// The weight of cell i, which is `index` or `index` + 1.
  __device__ A share(int64_t i) const { return index == i ? A(1) - next : next; }
};

/// An axis as the kernels read it. first[i] is axis.first_output(i), 0 <= i <= in.
template <class A>
struct Taps {
  int64_t in, out;
  bool nearest;
  Tap<A>* taps;
  int64_t* first;

  /// The first output that may read cell i; the last one is before first[i + 1].
  __device__ int64_t first_reader(int64_t i) const { return first[nearest || i == 0 ? i : i - 1]; }
};

/// Thread n writes tap n and first[n] of each axis.
template <class A>
struct WriteTaps {
  InterpolateAxes axes;
  Taps<A> d, h, w;

  __device__ void operator()(int64_t n) const {
    write(axes[0], d, n), write(axes[1], h, n), write(axes[2], w, n);
  }
  __device__ static void write(const InterpolateAxis& axis, const Taps<A>& to, int64_t n) {
    if (n < axis.out) {
      const InterpolateTap tap = axis.tap(n);
      to.taps[n] = {tap.index, static_cast<A>(tap.weight_next)};
    }
    if (n <= axis.in) to.first[n] = n < axis.in ? axis.first_output(n) : axis.out;
  }
};

__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

/// a where next is 0, whatever b is.
template <class A>
__device__ A blend(A a, A b, A next) {
  return next == 0 ? a : multiply_add(next, b, (A(1) - next) * a);
}

template <class T, class A = opmath_t<T>>
struct Interpolate {
  Columns columns;
  Taps<A> d, h, w;
  const T* x;
  T* y;

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const Tap<A> at_h = h.taps[column.h], at_w = w.taps[column.w];
    const int64_t next_h = at_h.next == 0 ? 0 : w.in, next_w = at_w.next == 0 ? 0 : 1;
    const T* const from = x + (column.plane * d.in * h.in + at_h.index) * w.in + at_w.index;
    const auto in_slice = [&](int64_t i) {
      const T* const p = from + i * h.in * w.in;
      const T* const q = p + next_h;
      return blend(blend(A(p[0]), A(p[next_w]), at_w.next), blend(A(q[0]), A(q[next_w]), at_w.next),
                   at_h.next);
    };
    T* to = y + ((column.plane * d.out + column.begin) * h.out + column.h) * w.out + column.w;
    int64_t low_at = -1, high_at = -1;  // the slices of `low` and `high`
    A low = 0, high = 0;
    for (int64_t o = column.begin; o < column.end; ++o, to += h.out * w.out) {
      const Tap<A> tap = d.taps[o];
      if (tap.index != low_at) {
        low = tap.index == high_at ? high : in_slice(tap.index);
        low_at = tap.index;
      }
      if (tap.next != 0 && tap.index + 1 != high_at) {
        high = in_slice(tap.index + 1);
        high_at = tap.index + 1;
      }
      *to = T(blend(low, high, tap.next));
    }
  }
};

template <class T, class A = opmath_t<T>>
struct InterpolateAdjoint {
  Columns columns;
  Taps<A> d, h, w;
  const T* grad_y;
  T* grad_x;

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const int64_t begin_h = h.first_reader(column.h), end_h = h.first[column.h + 1];
    const int64_t begin_w = w.first_reader(column.w), end_w = w.first[column.w + 1];
    constexpr int kept = 4;  // weights along W in registers
    A weight_w[kept];
#pragma unroll
    for (int k = 0; k < kept; ++k)
      weight_w[k] = begin_w + k < end_w ? w.taps[begin_w + k].share(column.w) : A(0);

    const auto in_slice = [&](int64_t o) {
      const T* const slice = grad_y + (column.plane * d.out + o) * h.out * w.out;
      A sum = 0;
      for (int64_t oh = begin_h; oh < end_h; ++oh) {
        const A weight_h = h.taps[oh].share(column.h);
        if (weight_h == 0) continue;
        const T* const row = slice + oh * w.out;
        A sum_w = 0;
#pragma unroll
        for (int k = 0; k < kept; ++k)
          if (weight_w[k] != 0) sum_w = multiply_add(weight_w[k], A(row[begin_w + k]), sum_w);
        for (int64_t ow = begin_w + kept; ow < end_w; ++ow) {
          const A weight = w.taps[ow].share(column.w);
          if (weight != 0) sum_w = multiply_add(weight, A(row[ow]), sum_w);
        }
        sum = multiply_add(weight_h, sum_w, sum);
      }
      return sum;
    };

    A sum = 0;  // of the cell that is next
    for (int64_t o = d.first_reader(column.begin); o < d.first[column.begin]; ++o) {
      const A next = d.taps[o].next;
      if (next != 0) sum = multiply_add(next, in_slice(o), sum);
    }
    T* to = grad_x + ((column.plane * d.in + column.begin) * h.in + column.h) * w.in + column.w;
    for (int64_t i = column.begin; i < column.end; ++i, to += h.in * w.in) {
      A sum_of_next = 0;
      for (int64_t o = d.first[i]; o < d.first[i + 1]; ++o) {
        const A next = d.taps[o].next, here = A(1) - next, value = in_slice(o);
        if (here != 0) sum = multiply_add(here, value, sum);
        if (next != 0) sum_of_next = multiply_add(next, value, sum_of_next);
      }
      *to = T(sum);
      sum = sum_of_next;
    }
  }
};

/// Runs Map on the dense form of `input`.
template <template <class, class> class Map>
void run(const char* function, const Tensor& input, const InterpolateAxes& axes, Tensor& output) {
  const Tensor dense = input.contiguous();
  const Launch launch(function, output, {&dense});
  visit_floating_storage(function, output.dtype(), [&]<class T>(T) {
    using A = opmath_t<T>;
    int64_t taps = 0, first = 0, threads = 0;
    for (const InterpolateAxis& axis : axes) {
      taps += axis.out, first += axis.in + 1;
      threads = std::max({threads, axis.out, axis.in + 1});
    }
    const Workspace taps_memory(launch, taps * static_cast<int64_t>(sizeof(Tap<A>)));
    const Workspace first_memory(launch, first * static_cast<int64_t>(sizeof(int64_t)));
    Taps<A> of_axis[3];
    Tap<A>* next_tap = taps_memory.as<Tap<A>>();
    int64_t* next_first = first_memory.as<int64_t>();
    for (size_t i = 0; i < 3; ++i) {
      const InterpolateAxis& axis = axes[i];
      of_axis[i] = {axis.in, axis.out, axis.nearest, next_tap, next_first};
      next_tap += axis.out, next_first += axis.in + 1;
    }
    const auto& [d, h, w] = of_axis;
    for_each_index(launch, threads, WriteTaps<A>{axes, d, h, w});
    const Shape& size = output.shape();
    const Columns columns(size[0] * size[1], size[2], size[3], size[4]);
    for_each_index(launch, columns.count(),
                   Map<T, A>{columns, d, h, w, detail::ptr<T>(dense), detail::mutable_ptr<T>(output)});
  });
}

}  // namespace

void interpolate(const Tensor& x, const InterpolateAxes& axes, Tensor& y) {
  run<Interpolate>("interpolate", x, axes, y);
}

void interpolate_adjoint(const Tensor& grad_y, const InterpolateAxes& axes, Tensor& grad_x) {
  run<InterpolateAdjoint>("interpolate_adjoint", grad_y, axes, grad_x);
}

}  // namespace vox::cuda

// Interpolation along all three axes at once, and its adjoint:
//
//   y[o]      = sum over the cells i that o reads of  w(od, id) w(oh, ih) w(ow, iw) x[i]
//   grad_x[i] = sum over the cells o that read i of   w(od, id) w(oh, ih) w(ow, iw) grad_y[o]
//
// w(o, i) is the share of cell i in cell o along one axis, where o reads at most two cells. The sums run
// along W first, then H, then D; in the adjoint od, oh and ow rise.
//
// A thread owns some consecutive results along D at one place of H and W, so it computes what it needs of a
// slice of cells, all (h, w) at one d, once for all results that use it: slices are read by blends from above
// and below, and in the adjoint shared by two cells. A result is a packet of cells along W or, in the
// adjoint, one cell. Neighbours in a warp are neighbours along W. Each element is written once; reads mostly
// come from cache. The taps of the axes (a division in double each) are computed on the device by the code
// that the CPU runs, once for all threads. Multiplications and additions are joined by hand, so that all axes
// round alike.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/cuda/columns.cuh>
#include <voxgrad/cuda/for_each_index.cuh>

#include <algorithm>

namespace vox::cuda {

namespace {

/// InterpolateTap in the types that the kernels compute in: A, and Int for indices within a plane.
template <class A, class Int>
struct alignas(2 * sizeof(Int)) Tap {
  Int index;
  A next;
  /// The weight of cell i, which is `index` or `index` + 1.
  __device__ A share(Int i) const { return index == i ? A(1) - next : next; }
};

/// An axis as the kernels read it. first[i] is axis.first_output(i), 0 <= i <= in.
template <class A, class Int>
struct Taps {
  Int in, out;
  bool nearest;
  Tap<A, Int>* taps;
  Int* first;

  /// The first output that may read cell i; the last one is before first[i + 1].
  __device__ Int first_reader(Int i) const { return first[nearest || i == 0 ? i : i - 1]; }
};

/// Thread n writes tap n and first[n] of each axis.
template <class A, class Int>
struct WriteTaps {
  InterpolateAxes axes;
  Taps<A, Int> d, h, w;

  __device__ void operator()(int64_t n) const {
    write(axes[0], d, n), write(axes[1], h, n), write(axes[2], w, n);
  }
  __device__ static void write(const InterpolateAxis& axis, const Taps<A, Int>& to, int64_t n) {
    if (n < axis.out) {
      const InterpolateTap tap = axis.tap(n);
      to.taps[n] = {static_cast<Int>(tap.index), static_cast<A>(tap.weight_next)};
    }
    if (n <= axis.in) to.first[n] = static_cast<Int>(n < axis.in ? axis.first_output(n) : axis.out);
  }
};

__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

/// a where next is 0, whatever b is.
template <class A>
__device__ A blend(A a, A b, A next) {
  return next == 0 ? a : multiply_add(next, b, (A(1) - next) * a);
}

/// `nearest` says that all axes are.
template <class T, class Int, bool nearest, int size>
struct Interpolate {
  using A = opmath_t<T>;
  Columns columns;  // of packets
  Taps<A, Int> d, h, w;
  const T* x;
  T* y;

  /// Of a slice: what each result of a packet would be there.
  struct Blends {
    A of[size];
  };

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const auto column_h = static_cast<Int>(column.h), column_w = static_cast<Int>(column.w * size);
    const Tap<A, Int> at_h = h.taps[column_h];
    Tap<A, Int> at_w[size];
#pragma unroll
    for (int k = 0; k < size; ++k) at_w[k] = w.taps[column_w + k];
    const Int slice = h.in * w.in, row = at_h.index * w.in, next_row = at_h.next == 0 ? 0 : w.in;
    const T* const plane = x + column.plane * (int64_t{d.in} * slice);
    const auto in_slice = [&](Int i) {
      const T* const from = plane + (i * slice + row);
      Blends blends;
#pragma unroll
      for (int k = 0; k < size; ++k) {
        const T* const p = from + at_w[k].index;
        if constexpr (nearest) {
          blends.of[k] = A(*p);
        } else {
          const T* const q = p + next_row;
          const int next = at_w[k].next == 0 ? 0 : 1;
          blends.of[k] = blend(blend(A(p[0]), A(p[next]), at_w[k].next),
                               blend(A(q[0]), A(q[next]), at_w[k].next), at_h.next);
        }
      }
      return blends;
    };
    const Int end = static_cast<Int>(column.end), step = h.out * w.out;
    auto o = static_cast<Int>(column.begin);
    T* to = y + column.plane * (int64_t{d.out} * step) + (o * step + column_h * w.out + column_w);
    Int low_at = -1, high_at = -1;  // the slices of `low` and `high`
    Blends low{}, high{};
    for (; o < end; ++o, to += step) {
      const Tap<A, Int> tap = d.taps[o];
      if (tap.index != low_at) {
        low = tap.index == high_at ? high : in_slice(tap.index);
        low_at = tap.index;
      }
      if (!nearest && tap.next != 0 && tap.index + 1 != high_at) {
        high = in_slice(tap.index + 1);
        high_at = tap.index + 1;
      }
      Packet<T, size> packet;
#pragma unroll
      for (int k = 0; k < size; ++k)
        packet.lane[k] = T(nearest ? low.of[k] : blend(low.of[k], high.of[k], tap.next));
      store_packet(packet, to);
    }
  }
};

template <class T, class Int, bool nearest>
struct InterpolateAdjoint {
  using A = opmath_t<T>;
  Columns columns;
  Taps<A, Int> d, h, w;
  const T* grad_y;
  T* grad_x;

  /// The weights with which some outputs of an axis read one cell. Those that double the axis, and smaller
  /// ones, have no more readers.
  static constexpr int at_once = nearest ? 2 : 4;
  struct Weights {
    A of[at_once];
    __device__ Weights(const Taps<A, Int>& axis, Int begin, Int end, Int cell) {
#pragma unroll
      for (int k = 0; k < at_once; ++k) of[k] = begin + k < end ? axis.taps[begin + k].share(cell) : A(0);
    }
  };

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const auto column_h = static_cast<Int>(column.h), column_w = static_cast<Int>(column.w);
    const Int begin_h = h.first_reader(column_h), end_h = h.first[column_h + 1];
    const Int begin_w = w.first_reader(column_w), end_w = w.first[column_w + 1];
    const Weights first_h(h, begin_h, end_h, column_h), first_w(w, begin_w, end_w, column_w);
    const Int slice = h.out * w.out;
    const T* const plane = grad_y + column.plane * (int64_t{d.out} * slice);

    const auto in_slice = [&](Int o) {
      A sum = 0;
      for (Int oh = begin_h; oh < end_h; oh += at_once) {
        const Weights in_h = oh == begin_h ? first_h : Weights(h, oh, end_h, column_h);
        A sum_w[at_once] = {};
        for (Int ow = begin_w; ow < end_w; ow += at_once) {
          const Weights in_w = ow == begin_w ? first_w : Weights(w, ow, end_w, column_w);
          const T* const from = plane + (o * slice + oh * w.out + ow);
          A value[at_once][at_once];  // of weight 0: 0, whatever lies there
#pragma unroll
          for (int r = 0; r < at_once; ++r)
#pragma unroll
            for (int k = 0; k < at_once; ++k)
              value[r][k] = in_h.of[r] != 0 && in_w.of[k] != 0 ? A(from[r * w.out + k]) : A(0);
#pragma unroll
          for (int r = 0; r < at_once; ++r)
#pragma unroll
            for (int k = 0; k < at_once; ++k) sum_w[r] = multiply_add(in_w.of[k], value[r][k], sum_w[r]);
        }
#pragma unroll
        for (int r = 0; r < at_once; ++r) sum = multiply_add(in_h.of[r], sum_w[r], sum);
      }
      return sum;
    };

    auto i = static_cast<Int>(column.begin);
    const auto end = static_cast<Int>(column.end);
    A sum = 0;  // of the cell that is next
    for (Int o = d.first_reader(i); o < d.first[i]; ++o) {
      const A next = d.taps[o].next;
      if (next != 0) sum = multiply_add(next, in_slice(o), sum);
    }
    T* to = grad_x + ((column.plane * d.in + i) * h.in + column_h) * w.in + column_w;
    for (; i < end; ++i, to += h.in * w.in) {
      A sum_of_next = 0;
      for (Int o = d.first[i]; o < d.first[i + 1]; ++o) {
        const A next = d.taps[o].next, here = A(1) - next, value = in_slice(o);
        if (here != 0) sum = multiply_add(here, value, sum);
        if (next != 0) sum_of_next = multiply_add(next, value, sum_of_next);
      }
      *to = T(sum);
      sum = sum_of_next;
    }
  }
};

/// Calls run(T, Int, nearest as an integral_constant, the dense form of `input`, the taps of D, H and W).
template <class Run>
void with_taps(const char* function, const Tensor& input, const InterpolateAxes& axes, Tensor& output,
               Run run) {
  const Tensor dense = input.contiguous();
  const Launch launch(function, output, {&dense});
  int64_t cells = 1, results = 1, all_taps = 0, all_first = 0, threads = 0;
  bool nearest = true;
  for (const InterpolateAxis& axis : axes) {
    cells *= axis.in, results *= axis.out;
    all_taps += axis.out, all_first += axis.in + 1;
    threads = std::max({threads, axis.out, axis.in + 1});
    nearest = nearest && axis.nearest;
  }
  const auto with_types = [&]<class T, class Int>(T, Int) {
    using A = opmath_t<T>;
    const Workspace taps_memory(launch, all_taps * static_cast<int64_t>(sizeof(Tap<A, Int>)));
    const Workspace first_memory(launch, all_first * static_cast<int64_t>(sizeof(Int)));
    Taps<A, Int> of_axis[3];
    Tap<A, Int>* next_tap = taps_memory.as<Tap<A, Int>>();
    Int* next_first = first_memory.as<Int>();
    for (size_t i = 0; i < 3; ++i) {
      const InterpolateAxis& axis = axes[i];
      of_axis[i] = {static_cast<Int>(axis.in), static_cast<Int>(axis.out), axis.nearest, next_tap,
                    next_first};
      next_tap += axis.out, next_first += axis.in + 1;
    }
    const auto& [d, h, w] = of_axis;
    for_each_index(launch, threads, WriteTaps<A, Int>{axes, d, h, w});
    if (nearest)
      run(launch, T(), std::true_type(), dense, d, h, w);
    else
      run(launch, T(), std::false_type(), dense, d, h, w);
  };
  visit_floating_storage(function, output.dtype(), [&]<class T>(T) {
    constexpr int64_t most = int64_t{1} << 30;
    if (cells < most && results < most)
      with_types(T(), int32_t());
    else
      with_types(T(), int64_t());
  });
}

}  // namespace

void interpolate(const Tensor& x, const InterpolateAxes& axes, Tensor& y) {
  with_taps("interpolate", x, axes, y,
            [&]<class T, bool nearest, class A, class Int>(
                const Launch& launch, T, std::bool_constant<nearest>, const Tensor& dense,
                const Taps<A, Int>& d, const Taps<A, Int>& h, const Taps<A, Int>& w) {
              const T* from = detail::ptr<T>(dense);
              T* to = detail::mutable_ptr<T>(y);
              with_packet_size<Int>(to, w.out, [&]<int size>(std::integral_constant<int, size>) {
                const Columns columns(y.size(0) * y.size(1), d.out, h.out, w.out / size);
                for_each_index(launch, columns.count(),
                               Interpolate<T, Int, nearest, size>{columns, d, h, w, from, to});
              });
            });
}

void interpolate_adjoint(const Tensor& grad_y, const InterpolateAxes& axes, Tensor& grad_x) {
  with_taps("interpolate_adjoint", grad_y, axes, grad_x,
            [&]<class T, bool nearest, class A, class Int>(
                const Launch& launch, T, std::bool_constant<nearest>, const Tensor& dense,
                const Taps<A, Int>& d, const Taps<A, Int>& h, const Taps<A, Int>& w) {
              const Columns columns(grad_x.size(0) * grad_x.size(1), d.in, h.in, w.in);
              for_each_index(launch, columns.count(),
                             InterpolateAdjoint<T, Int, nearest>{columns, d, h, w, detail::ptr<T>(dense),
                                                                 detail::mutable_ptr<T>(grad_x)});
            });
}

}  // namespace vox::cuda

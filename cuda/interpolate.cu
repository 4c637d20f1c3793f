// One axis of an interpolation and its adjoint, on x as (outer, in, inner) and y as (outer, out, inner):
//
//   y[.., o, ..]      = (1 - w) x[.., index, ..] + w x[.., index + 1, ..],  (index, w) = axis.tap(o)
//   grad_x[.., i, ..] = the sum, by rising o, of the share of i in o * grad_y[.., o, ..]
//
// One thread owns one element of the result; neighbours in a warp are neighbours in memory. Taps are computed
// where they are needed (a division in double), by the code that the CPU runs, so no table has to be copied
// to the GPU. Each element is written once; reads mostly come from cache. Ideas not tried: all three axes in
// one pass for the forward, and taps shared by the threads of a row.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/for_each_index.cuh>

namespace vox::cuda {

namespace {

template <class T>
struct Interpolate {
  InterpolateAxis axis;
  int64_t inner;
  const T* x;
  T* y;

  __device__ void operator()(int64_t n) const {
    const int64_t k = n % inner, row = n / inner;
    const InterpolateTap tap = axis.tap(row % axis.out);
    const T* a = x + (row / axis.out * axis.in + tap.index) * inner + k;
    const T next = static_cast<T>(tap.weight_next);
    y[n] = next == 0 ? a[0] : (T(1) - next) * a[0] + next * a[inner];
  }
};

template <class T>
struct InterpolateAdjoint {
  InterpolateAxis axis;
  int64_t inner;
  const T* grad_y;
  T* grad_x;

  __device__ void operator()(int64_t n) const {
    const int64_t k = n % inner, row = n / inner;
    const int64_t i = row % axis.in;
    const T* g = grad_y + row / axis.in * axis.out * inner + k;
    T sum = 0;
    for (int64_t o = axis.first_output(i - 1); o < axis.out; ++o) {
      const InterpolateTap tap = axis.tap(o);
      if (tap.index > i) break;
      const T next = static_cast<T>(tap.weight_next);
      const T weight = tap.index == i ? T(1) - next : next;
      if (weight != 0) sum += weight * g[o * inner];
    }
    grad_x[n] = sum;
  }
};

}  // namespace

void interpolate_axis(const Tensor& x, int64_t dim, const InterpolateAxis& axis, Tensor& y) {
  const Launch launch("interpolate", y, {&x});
  visit_floating("interpolate", y.dtype(), [&]<class T>(T) {
    const int64_t inner = AxisView(y.shape(), dim).inner;
    for_each_index(launch, y.numel(),
                   Interpolate<T>{axis, inner, detail::ptr<T>(x), detail::mutable_ptr<T>(y)});
  });
}

void interpolate_axis_adjoint(const Tensor& grad_y, int64_t dim, const InterpolateAxis& axis,
                              Tensor& grad_x) {
  const Launch launch("interpolate_adjoint", grad_x, {&grad_y});
  visit_floating("interpolate_adjoint", grad_x.dtype(), [&]<class T>(T) {
    const int64_t inner = AxisView(grad_x.shape(), dim).inner;
    for_each_index(
        launch, grad_x.numel(),
        InterpolateAdjoint<T>{axis, inner, detail::ptr<T>(grad_y), detail::mutable_ptr<T>(grad_x)});
  });
}

}  // namespace vox::cuda

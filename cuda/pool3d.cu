// Pooling and its gradients. One thread owns one element of the result and gathers it, by the formulas of
// pool3d_window.h, which the CPU shares. There are no atomics: a cell sums its windows in their order. A
// window reads about one kernel volume, most of it from cache. Idea not tried: pooling one axis at a time.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/cuda/for_each_index.cuh>

#include <limits>

namespace vox::cuda {

namespace {

template <class T>
struct MaxPool {
  Pool3dGeometry geometry;
  T lowest;  // of a window without cells
  const T* x;
  T* y;
  int64_t* indices;  // or null

  __device__ void operator()(int64_t n) const {
    const T* plane = x + n / geometry.windows() * geometry.cells();
    const int64_t best = max_index(plane, geometry, n % geometry.windows());
    y[n] = best < 0 ? lowest : plane[best];
    if (indices) indices[n] = best;
  }
};

template <class T>
struct MaxPoolTake {
  Pool3dGeometry geometry;
  const T* x;
  const int64_t* indices;
  T* y;

  __device__ void operator()(int64_t n) const {
    const T* plane = x + n / geometry.windows() * geometry.cells();
    y[n] = indices[n] < 0 ? T(0) : plane[indices[n]];
  }
};

template <class T>
struct MaxPoolGive {
  Pool3dGeometry geometry;
  const T* y;
  const int64_t* indices;
  T* x;

  __device__ void operator()(int64_t n) const {
    const int64_t plane = n / geometry.cells() * geometry.windows();
    x[n] = T(max_gradient(y + plane, indices + plane, geometry, n % geometry.cells()));
  }
};

template <class T>
struct AvgPool {
  Pool3dGeometry geometry;
  const T* x;
  T* y;

  __device__ void operator()(int64_t n) const {
    const T* plane = x + n / geometry.windows() * geometry.cells();
    y[n] = T(window_mean(plane, geometry, n % geometry.windows()));
  }
};

template <class T>
struct AvgPoolAdjoint {
  Pool3dGeometry geometry;
  const T* y;
  T* x;

  __device__ void operator()(int64_t n) const {
    const T* plane = y + n / geometry.cells() * geometry.windows();
    x[n] = T(mean_gradient(plane, geometry, n % geometry.cells()));
  }
};

}  // namespace

void max_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y, Tensor& indices) {
  const Launch launch("max_pool3d", y, {&x, &indices});
  visit_floating_storage("max_pool3d", y.dtype(), [&]<class T>(T) {
    for_each_index(launch, y.numel(),
                   MaxPool<T>{geometry, T(-std::numeric_limits<opmath_t<T>>::infinity()), detail::ptr<T>(x),
                              detail::mutable_ptr<T>(y),
                              indices.defined() ? detail::mutable_ptr<int64_t>(indices) : nullptr});
  });
}

void max_pool3d_take(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& y) {
  const Launch launch("max_pool3d_take", y, {&x, &indices});
  visit_floating_storage("max_pool3d_take", y.dtype(), [&]<class T>(T) {
    for_each_index(launch, y.numel(),
                   MaxPoolTake<T>{geometry, detail::ptr<T>(x), detail::ptr<int64_t>(indices),
                                  detail::mutable_ptr<T>(y)});
  });
}

void max_pool3d_give(const Tensor& y, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& x) {
  const Launch launch("max_pool3d_give", x, {&y, &indices});
  visit_floating_storage("max_pool3d_give", x.dtype(), [&]<class T>(T) {
    for_each_index(launch, x.numel(),
                   MaxPoolGive<T>{geometry, detail::ptr<T>(y), detail::ptr<int64_t>(indices),
                                  detail::mutable_ptr<T>(x)});
  });
}

void avg_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y) {
  const Launch launch("avg_pool3d", y, {&x});
  visit_floating_storage("avg_pool3d", y.dtype(), [&]<class T>(T) {
    for_each_index(launch, y.numel(), AvgPool<T>{geometry, detail::ptr<T>(x), detail::mutable_ptr<T>(y)});
  });
}

void avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& geometry, Tensor& x) {
  const Launch launch("avg_pool3d_adjoint", x, {&y});
  visit_floating_storage("avg_pool3d_adjoint", x.dtype(), [&]<class T>(T) {
    for_each_index(launch, x.numel(),
                   AvgPoolAdjoint<T>{geometry, detail::ptr<T>(y), detail::mutable_ptr<T>(x)});
  });
}

}  // namespace vox::cuda

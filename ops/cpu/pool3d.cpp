// Pooling and its gradients: one owner per output element, everything is gathered (see pool3d_window.h for
// the formulas). Reads about one kernel volume per window; the next idea would be to pool one axis at a time.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/pool3d_kernels.h>

#include <limits>

namespace vox::cpu {

namespace {

constexpr int64_t elements_per_chunk = 2048;

/// f(plane, index within it) for every element of `out`, of which a plane has `per_plane`.
template <class F>
void for_each_element(const Tensor& out, int64_t per_plane, F f) {
  parallel_for(out.numel(), elements_per_chunk, [&](int64_t begin, int64_t end) {
    int64_t plane = begin / per_plane, i = begin % per_plane;
    for (int64_t n = begin; n < end; ++n) {
      f(plane, i);
      if (++i == per_plane) i = 0, ++plane;
    }
  });
}

}  // namespace

void max_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y, Tensor& indices) {
  visit_floating("max_pool3d", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    int64_t* index_to = indices.defined() ? detail::mutable_ptr<int64_t>(indices) : nullptr;
    const int64_t cells = geometry.cells(), windows = geometry.windows();
    for_each_element(y, windows, [&](int64_t plane, int64_t o) {
      const T* cell = from + plane * cells;
      const int64_t best = max_index(cell, geometry, o);
      to[plane * windows + o] = best < 0 ? -std::numeric_limits<T>::infinity() : cell[best];
      if (index_to) index_to[plane * windows + o] = best;
    });
  });
}

void max_pool3d_take(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& y) {
  visit_floating("max_pool3d_take", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    const int64_t* index = detail::ptr<int64_t>(indices);
    T* to = detail::mutable_ptr<T>(y);
    const int64_t cells = geometry.cells(), windows = geometry.windows();
    for_each_element(y, windows, [&](int64_t plane, int64_t o) {
      const int64_t n = plane * windows + o;
      to[n] = index[n] < 0 ? T(0) : from[plane * cells + index[n]];
    });
  });
}

void max_pool3d_give(const Tensor& y, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& x) {
  visit_floating("max_pool3d_give", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    const int64_t* index = detail::ptr<int64_t>(indices);
    T* to = detail::mutable_ptr<T>(x);
    const int64_t cells = geometry.cells(), windows = geometry.windows();
    for_each_element(x, cells, [&](int64_t plane, int64_t i) {
      to[plane * cells + i] = max_gradient(from + plane * windows, index + plane * windows, geometry, i);
    });
  });
}

void avg_pool3d(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y) {
  visit_floating("avg_pool3d", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    const int64_t cells = geometry.cells(), windows = geometry.windows();
    for_each_element(y, windows, [&](int64_t plane, int64_t o) {
      to[plane * windows + o] = window_mean(from + plane * cells, geometry, o);
    });
  });
}

void avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& geometry, Tensor& x) {
  visit_floating("avg_pool3d_adjoint", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    T* to = detail::mutable_ptr<T>(x);
    const int64_t cells = geometry.cells(), windows = geometry.windows();
    for_each_element(x, cells, [&](int64_t plane, int64_t i) {
      to[plane * cells + i] = mean_gradient(from + plane * windows, geometry, i);
    });
  });
}

}  // namespace vox::cpu

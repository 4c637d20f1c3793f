// index_select copies slices by index, and index_add adds them: x is (outer, size, inner), y is (outer,
// count, inner).
//
// index_select: one thread owns one element of y. index_add: one thread owns one (outer, inner) column of one
// range of x's rows. It reads every index, and adds the rows whose index falls into its range, in the order
// of the indices. So there are no atomics and no sort, and the result does not depend on the ranges. There
// are as many ranges as give the GPU enough threads. Each range reads all `count` indices (from cache, the
// same one across a warp); sorting them first would save that.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/for_each_index.cuh>

#include <algorithm>
#include <limits>

namespace vox::cuda {

namespace {

template <class T>
struct IndexSelect {
  int64_t size, count, inner;
  T outside;                       // for an invalid index, which is not checked during graph capture
  detail::StridedLayout<1> slice;  // of x, for one index
  int64_t step, indices_stride;    // from slice to slice of x; of `indices`
  const T* x;
  const int64_t* indices;
  T* y;

  __device__ void operator()(int64_t n) const {
    const int64_t k = n / inner % count, outer = n / inner / count;
    const int64_t i = indices[k * indices_stride];
    y[n] = i >= 0 && i < size ? x[slice.offsets(outer * inner + n % inner)[0] + i * step] : outside;
  }
};

template <class T>
struct IndexAdd {
  int64_t size, count, inner, ranges, rows_per_range;
  const T* y;
  const int64_t* indices;
  T* x;

  // t: (outer, range, inner)
  __device__ void operator()(int64_t t) const {
    const int64_t outer = t / inner / ranges, begin = t / inner % ranges * rows_per_range;
    const int64_t end = begin + rows_per_range < size ? begin + rows_per_range : size;
    T* to = x + outer * size * inner + t % inner;
    const T* from = y + outer * count * inner + t % inner;
    for (int64_t i = begin; i < end; ++i) to[i * inner] = 0;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = indices[k];
      if (i >= begin && i < end) to[i * inner] += from[k * inner];
    }
  }
};

template <class T>
constexpr T outside_value() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
  return T(0);
}

}  // namespace

void check_indices(const Tensor& indices, int64_t size) {
  {
    const Launch launch("index_select", indices);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    launch.check(cudaStreamIsCapturing(launch.stream(), &status));
    if (status != cudaStreamCaptureStatusNone) return;
  }
  cpu::check_indices(indices.to(Device::cpu()), size);
}

void index_select(const Tensor& x, int64_t dim, const Tensor& indices, Tensor& y) {
  const Launch launch("index_select", y, {&x, &indices});
  visit_dtype(y.dtype(), [&]<class T>(T) {
    const AxisView view(y.shape(), dim);
    for_each_index(
        launch, y.numel(),
        IndexSelect<T>{x.shape()[dim], view.axis, view.inner, outside_value<T>(),
                       detail::slice_layout(x, dim), x.strides()[dim], indices.strides()[0],
                       detail::ptr<T>(x), detail::ptr<int64_t>(indices), detail::mutable_ptr<T>(y)});
  });
}

void index_add(const Tensor& y, int64_t dim, const Tensor& indices, Tensor& x) {
  const Launch launch("index_add", x, {&y, &indices});
  visit_floating("index_add", x.dtype(), [&]<class T>(T) {
    const AxisView view(x.shape(), dim);
    const int64_t columns = view.outer * view.inner;
    // 2^15 threads: a few warps for each scheduler of a large GPU.
    const int64_t wanted = std::clamp<int64_t>((int64_t{1} << 15) / columns, 1, view.axis);
    const int64_t rows = (view.axis + wanted - 1) / wanted;
    const int64_t ranges = (view.axis + rows - 1) / rows;
    for_each_index(launch, columns * ranges,
                   IndexAdd<T>{view.axis, indices.numel(), view.inner, ranges, rows, detail::ptr<T>(y),
                               detail::ptr<int64_t>(indices), detail::mutable_ptr<T>(x)});
  });
}

}  // namespace vox::cuda

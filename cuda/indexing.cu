// Elements gathered by index, and scattered by index. x is (outer, size, inner), y is (outer, count, inner).
//
// gather: one thread owns one element of y. scatter: one thread owns one (outer, inner) line of one range of
// x's slices. It reads every index of the line, and writes the elements whose index falls into its range, in
// the order of the indices. So there are no atomics and no sort, and the result does not depend on the
// ranges. There are as many ranges as give the GPU enough threads. Each range reads all indices of its line
// (from cache, the same ones across a warp); sorting them first would save that.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/for_each_index.cuh>

#include <algorithm>
#include <limits>

namespace vox::cuda {

namespace {

/// Where the index of element (outer, k, inner) is: one for each element, or one for each k.
struct IndexPlaces {
  const int64_t* index;
  int64_t outer_step, step, inner_step;

  IndexPlaces(const Tensor& indices, const AxisView& y) : index(detail::ptr<int64_t>(indices)) {
    const bool whole_rows = indices.rank() == 1;
    outer_step = whole_rows ? 0 : y.axis * y.inner;
    step = whole_rows ? 1 : y.inner;
    inner_step = whole_rows ? 0 : 1;
  }
};

template <class T>
struct Gather {
  int64_t size, count, inner;
  T outside;                       // for an invalid index, which is not checked during graph capture
  detail::StridedLayout<1> slice;  // of x, for one index
  int64_t step;                    // from slice to slice of x
  IndexPlaces places;
  const T* x;
  T* y;

  __device__ void operator()(int64_t n) const {
    const int64_t k = n / inner % count, outer = n / inner / count, j = n % inner;
    const int64_t i = places.index[outer * places.outer_step + k * places.step + j * places.inner_step];
    y[n] = i >= 0 && i < size ? x[slice.offsets(outer * inner + j)[0] + i * step] : outside;
  }
};

template <class T>
struct Scatter {
  int64_t size, count, inner, ranges, slices_per_range;
  detail::StridedLayout<1> slice;
  int64_t step;
  IndexPlaces places;
  const T* source;  // null: k is written
  T* x;

  // t: (outer, range, inner)
  __device__ void operator()(int64_t t) const {
    const int64_t outer = t / inner / ranges, j = t % inner, begin = t / inner % ranges * slices_per_range;
    const int64_t end = begin + slices_per_range < size ? begin + slices_per_range : size;
    T* to = x + slice.offsets(outer * inner + j)[0];
    const T* from = source + outer * count * inner + j;
    const int64_t* index = places.index + outer * places.outer_step + j * places.inner_step;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = index[k * places.step];
      if (i < begin || i >= end) continue;
      if (source)
        to[i * step] += from[k * inner];
      else
        to[i * step] = static_cast<T>(k);
    }
  }
};

template <class T>
constexpr T outside_value() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
  return T(0);
}

}  // namespace

void check_indices(const char* function, const char* argument, const Tensor& indices, int64_t size) {
  {
    const Launch launch(function, indices);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    launch.check(cudaStreamIsCapturing(launch.stream(), &status));
    if (status != cudaStreamCaptureStatusNone) return;
  }
  cpu::check_indices(function, argument, indices.to(Device::cpu()), size);
}

void gather(const Tensor& x, int64_t dim, const Tensor& indices, Tensor& y) {
  const Launch launch("gather", y, {&x, &indices});
  visit_bits(y.dtype(), [&]<class T>(T) {
    const AxisView view(y.shape(), dim);
    for_each_index(launch, y.numel(),
                   Gather<T>{x.shape()[dim], view.axis, view.inner, outside_value<T>(),
                             detail::slice_layout(x, dim), x.strides()[dim], IndexPlaces(indices, view),
                             detail::ptr<T>(x), detail::mutable_ptr<T>(y)});
  });
}

void scatter(const Tensor& source, int64_t dim, const Tensor& indices, Tensor& x) {
  const Launch launch("scatter", x, {&source, &indices});
  const AxisView view(source.defined() ? source.shape() : indices.shape(), dim);
  const int64_t lines = view.outer * view.inner, size = x.shape()[dim];
  // 2^15 threads: a few warps for each scheduler of a large GPU.
  const int64_t wanted = std::clamp<int64_t>((int64_t{1} << 15) / lines, 1, size);
  const int64_t slices = (size + wanted - 1) / wanted, ranges = (size + slices - 1) / slices;
  const auto run = [&]<class T>(T) {
    for_each_index(
        launch, lines * ranges,
        Scatter<T>{size, view.axis, view.inner, ranges, slices, detail::slice_layout(x, dim),
                   x.strides()[dim], IndexPlaces(indices, view),
                   source.defined() ? detail::ptr<T>(source) : nullptr, static_cast<T*>(x.impl()->data())});
  };
  if (x.dtype() == i64) return run(uint64_t{});  // wraps around
  visit_floating("scatter", x.dtype(), run);
}

}  // namespace vox::cuda

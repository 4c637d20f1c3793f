// Linear recurrences y_k = a_k y_{k-1} + b_k along rows. A block goes along a row in steps of a tile: each
// thread owns some neighbours, of which it joins the maps y -> a y + b; the block scans the maps of its
// threads; then every thread applies the map of all elements before its own. The length of a row alone
// decides which elements are joined, so the result has the same bits every time.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>

#include <algorithm>
#include <cub/block/block_scan.cuh>

namespace vox::cuda {

namespace {

/// y -> a y + b
template <class T>
struct Map {
  T a, b;
  __device__ T operator()(T y) const { return a * y + b; }
};
/// First f, then g. Products of factors are formed without the terms between them, so that a 0 before factors
/// whose product is infinite gives NaN.
struct Then {
  template <class T>
  __device__ Map<T> operator()(const Map<T>& f, const Map<T>& g) const {
    return {g.a * f.a, g(f.b)};
  }
};

constexpr int threads = 256, each = 4, tile = threads * each;

template <class T>
__global__ void __launch_bounds__(threads)
    recurrence_kernel(const T* a, const T* b, int64_t rows, int64_t n, bool reverse, T* y) {
  using Scan = cub::BlockScan<Map<T>, threads>;
  __shared__ typename Scan::TempStorage storage;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T before = 0;  // y of the last element of the tile before
    for (int64_t begin = 0; begin < n; begin += tile) {
      Map<T> maps[each];
      const int64_t first = begin + static_cast<int64_t>(threadIdx.x) * each;
      const auto place = [&](int u) { return row * n + (reverse ? n - 1 - first - u : first + u); };
#pragma unroll
      for (int u = 0; u < each; ++u) {
        if (first + u >= n)
          maps[u] = {1, 0};
        else
          maps[u] = {a && first + u > 0 ? a[place(u) + reverse] : T(1), b[place(u)]};
      }
      Map<T> mine = maps[0], all;
#pragma unroll
      for (int u = 1; u < each; ++u) mine = Then()(mine, maps[u]);
      Map<T> preceding;
      Scan(storage).ExclusiveScan(mine, preceding, Map<T>{1, 0}, Then(), all);
      // Nothing comes before the first tile, so its maps apply to 0, which an infinite factor must not meet.
      T value = threadIdx.x == 0 ? before : begin == 0 ? preceding.b : preceding(before);
#pragma unroll
      for (int u = 0; u < each; ++u) {
        value = maps[u](value);
        if (first + u < n) y[place(u)] = value;
      }
      before = begin == 0 ? all.b : all(before);
      __syncthreads();  // before the storage is used again
    }
  }
}

}  // namespace

void recurrence(const Tensor& a, const Tensor& b, bool reverse, Tensor& y) {
  const Launch launch("cumsum", y, {&a, &b});
  const int64_t n = y.size(-1), rows = y.numel() / n;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 20));
  const auto run = [&]<class T>(T) {
    recurrence_kernel<T><<<blocks, threads, 0, launch.stream()>>>(
        detail::ptr_or_null<T>(a), detail::ptr<T>(b), rows, n, reverse, detail::mutable_ptr<T>(y));
    launch.check();
  };
  if (y.dtype() == i64) return run(uint64_t{});  // wraps around
  visit_floating("cumsum", y.dtype(), run);
}

}  // namespace vox::cuda

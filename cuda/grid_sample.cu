// grid_sample, its adjoint, and the gradient of its grid (Note [The grid_sample family] in
// ops/grid_sample.cpp).
//
// The result and the gradient of the grid: a thread owns one point, finds its taps once, and goes through
// channels. The adjoint: points are sorted by the cell at which their taps begin. A thread adds up the points
// that begin at its cell, a range of the sorted list, once for each of the 8 cells that they read (4 without
// D, 1 if nearest). Then each cell adds the sums that belong to it. The sort is stable, so every sum has one
// order, and there are no atomics.

#include <cub/device/device_radix_sort.cuh>

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/cuda/for_each_index.cuh>

#include <algorithm>
#include <bit>

namespace vox::cuda {

namespace {

using detail::GridSampling;

/// The arithmetic of the formulas in ops/grid_sample_tap.h.
template <class A>
struct Math {
  using Number = A;
  using Value = A;
  using Int = int32_t;
  __device__ static int32_t to_int(A x) { return static_cast<int32_t>(x); }
  __device__ static A to_number(int32_t i) { return static_cast<A>(i); }
  __device__ static float product(float a, float b) { return __fmul_rn(a, b); }
  __device__ static double product(double a, double b) { return __dmul_rn(a, b); }
};

/// What one point reads, by axis: D, H, W.
template <class A>
struct Taps {
  int32_t at[3];
  A weight[3][2], slope[3][2];

  template <class T>
  __device__ Taps(const GridSampling& s, const T* grid, int64_t point) {
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const A coordinate = axis < 3 - s.axes ? A(0) : A(grid[point * s.axes + 2 - axis]);
      const auto tap =
          detail::grid_tap<Math<A>>(coordinate, s.size[axis], s.padding, s.nearest, s.align_corners);
      at[axis] = tap.index;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        weight[axis][k] = s.slope[axis] ? tap.slope[k] : tap.weight[k];
        slope[axis][k] = tap.slope[k];
      }
    }
  }
  __device__ int32_t cell(const GridSampling& s) const {
    return (at[0] * s.size[1] + at[1]) * s.size[2] + at[2];
  }
  __device__ bool reads_nothing() const {
    const auto nothing = [](const A(&of)[2]) { return of[0] == 0 && of[1] == 0; };
    return nothing(weight[0]) || nothing(weight[1]) || nothing(weight[2]);
  }
};

/// A cell of weight 0 does not count, whatever lies there, and is not read.
template <class A, class T>
__device__ A times(A weight, const T& x) {
  return weight == 0 ? A(0) : weight * A(x);
}

/// Thread i: (sample, part of the channels, point).
template <class T>
struct Sample {
  using A = opmath_t<T>;
  GridSampling s;
  int64_t parts, channels;  // of the channels; of a part
  const T *x, *grid;
  T* y;

  __device__ void operator()(int64_t i) const {
    const int64_t part = i / s.points, point = i - part * s.points, n = part / parts;
    const int64_t begin = (part - n * parts) * channels, cells = s.cells();
    const int64_t end = begin + channels < s.channels ? begin + channels : s.channels;
    const Taps<A> taps(s, grid, n * s.points + point);
    A weight[8];
    int32_t step[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int d = k / 4, h = k / 2 % 2, w = k % 2;
      weight[k] = taps.weight[0][d] * taps.weight[1][h] * taps.weight[2][w];
      step[k] = d * s.step(0) + h * s.step(1) + w * s.step(2);
    }
    const T* from = x + (n * s.channels + begin) * cells + taps.cell(s);
    T* to = y + (n * s.channels + begin) * s.points + point;
#pragma unroll 2
    for (int64_t c = begin; c < end; ++c, from += cells, to += s.points) {
      A sum = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += times(weight[k], from[step[k]]);
      *to = T(sum);
    }
  }
};

/// Thread i: a point of all samples.
template <class T>
struct GridGradient {
  using A = opmath_t<T>;
  GridSampling s;
  const T *g, *x, *grid;
  T* grad_grid;

  __device__ void operator()(int64_t i) const {
    const int64_t n = i / s.points, cells = s.cells();
    const Taps<A> taps(s, grid, i);
    const T *from = x + n * s.channels * cells + taps.cell(s),
            *grad_y = g + (s.channels - 1) * n * s.points + i;
    const auto &weight = taps.weight, &slope = taps.slope;
    A along[3] = {};
    for (int64_t c = 0; c < s.channels; ++c, from += cells, grad_y += s.points) {
      A sum[3] = {};
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        const int d = row / 2, h = row % 2;
        if (d == 1 && s.axes == 2) break;
        const T* const row_begin = from + d * s.step(0) + h * s.step(1);
        const A low = A(row_begin[0]), high = A(row_begin[s.step(2)]);
        const A value = times(weight[2][0], low) + times(weight[2][1], high);
        const A rise = times(slope[2][0], low) + times(slope[2][1], high);
        sum[2] += times(weight[0][d] * weight[1][h], rise);
        sum[1] += times(weight[0][d] * slope[1][h], value);
        sum[0] += times(slope[0][d] * weight[1][h], value);
      }
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) along[axis] += A(*grad_y) * sum[axis];
    }
#pragma unroll
    for (int axis = 0; axis < 3; ++axis)
      if (axis >= 3 - s.axes) grad_grid[i * s.axes + 2 - axis] = T(along[axis]);
  }
};

/// keys[i] = the cell, in all samples, at which the taps of point i begin; a number beyond all cells for a
/// point that reads nothing.
template <class T, class Int>
struct WriteKeys {
  GridSampling s;
  const T* grid;
  Int *keys, *points;

  __device__ void operator()(int64_t i) const {
    const Taps<opmath_t<T>> taps(s, grid, i);
    const int64_t cells = s.cells();
    keys[i] = static_cast<Int>(taps.reads_nothing() ? s.batch * cells : i / s.points * cells + taps.cell(s));
    points[i] = static_cast<Int>(i);
  }
};

/// begins[cell] = the place in the sorted keys of the first one that is not below the cell.
template <class Int>
struct FindBegins {
  int64_t count;
  const Int* keys;
  Int* begins;

  __device__ void operator()(int64_t cell) const {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (static_cast<int64_t>(keys[middle]) < cell)
        low = middle + 1;
      else
        high = middle;
    }
    begins[cell] = static_cast<Int>(low);
  }
};

/// Some channels of a sample, which one thread takes.
struct Part {
  static constexpr int size = 4;
  /// The channels of the first part, for which there is memory in each.
  VOX_HOST_DEVICE static int64_t width(const GridSampling& s) {
    return s.channels < size ? s.channels : size;
  }
  int64_t n, first, count;
  __device__ Part(const GridSampling& s, int64_t part) {
    const int64_t parts = (s.channels + size - 1) / size;
    n = part / parts, first = (part - n * parts) * size;
    count = s.channels - first < size ? s.channels - first : size;
  }
};

/// Thread i: (part, cell). sums (parts, Part::width, 8, cells): what the points that begin at the cell add to
/// cell k of those that they read, in the order (d, h, w), for k < corners.
template <class T, class Int>
struct SumPoints {
  using A = opmath_t<T>;
  GridSampling s;
  int corners;
  int64_t first_part;
  const T *y, *grid;
  const Int *begins, *points;
  A* sums;

  __device__ void operator()(int64_t i) const {
    const int64_t cells = s.cells(), local = i / cells, cell = i - local * cells;
    const Part part(s, first_part + local);
    const T* const from =
        y + (part.n * (s.channels - 1) + part.first) * s.points;  // plus the number of a point
    const Int end = begins[part.n * cells + cell + 1];
    A sum[Part::size][8] = {};
    for (Int j = begins[part.n * cells + cell]; j < end; ++j) {
      const int64_t point = points[j];
      const Taps<A> taps(s, grid, point);
      A g[Part::size];
#pragma unroll
      for (int c = 0; c < Part::size; ++c) g[c] = c < part.count ? A(from[c * s.points + point]) : A(0);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const A weight = taps.weight[0][k / 4] * taps.weight[1][k / 2 % 2] * taps.weight[2][k % 2];
#pragma unroll
        for (int c = 0; c < Part::size; ++c) sum[c][k] += times(weight, g[c]);
      }
    }
    A* const to = sums + local * Part::width(s) * 8 * cells + cell;
#pragma unroll
    for (int c = 0; c < Part::size; ++c)
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (c < part.count && k < corners) to[(c * 8 + k) * cells] = sum[c][k];
  }
};

/// Thread i: (part, channel, cell).
template <class T>
struct SumCorners {
  GridSampling s;
  int corners;
  int64_t first_part;
  const opmath_t<T>* sums;
  T* x;

  __device__ void operator()(int64_t i) const {
    const int64_t cells = s.cells(), local = i / cells;
    const auto cell = static_cast<int32_t>(i - local * cells);
    const Part part(s, first_part + local / Part::width(s));
    const int64_t channel = local % Part::width(s);
    if (channel >= part.count) return;
    const int32_t row = cell / s.size[2], w = cell - row * s.size[2], d = row / s.size[1],
                  h = row - d * s.size[1];
    const opmath_t<T>* const from = sums + local * 8 * cells + cell;
    opmath_t<T> sum = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int at_d = k / 4, at_h = k / 2 % 2, at_w = k % 2;
      if (k < corners && d >= at_d && h >= at_h && w >= at_w)
        sum += from[k * cells - ((at_d * s.size[1] + at_h) * s.size[2] + at_w)];
    }
    x[(part.n * s.channels + part.first + channel) * cells + cell] = T(sum);
  }
};

template <class Int, class T>
void adjoint(const Launch& launch, const GridSampling& s, const T* y, const T* grid, T* x) {
  const int64_t count = s.batch * s.points, cells = s.batch * int64_t{s.cells()};
  constexpr auto size = static_cast<int64_t>(sizeof(Int));
  const Workspace unsorted(launch, 2 * count * size), sorted(launch, 2 * count * size),
      begins(launch, (cells + 1) * size);
  Int *const keys = unsorted.as<Int>(), *const sorted_keys = sorted.as<Int>(),
             *const points = sorted_keys + count;
  for_each_index(launch, count, WriteKeys<T, Int>{s, grid, keys, keys + count});
  size_t bytes = 0;
  const auto sort = [&](void* memory) {
    launch.check(cub::DeviceRadixSort::SortPairs(memory, bytes, keys, sorted_keys, keys + count, points,
                                                 count, 0, std::bit_width(static_cast<uint64_t>(cells)),
                                                 launch.stream()));
  };
  sort(nullptr);
  const Workspace memory(launch, static_cast<int64_t>(bytes));
  if (count > 0) sort(memory.as<char>());
  for_each_index(launch, cells + 1, FindBegins<Int>{count, sorted_keys, begins.as<Int>()});
  using A = opmath_t<T>;
  const int corners = s.nearest ? 1 : s.axes == 2 ? 4 : 8;
  const int64_t parts = s.batch * ((s.channels + Part::size - 1) / Part::size);
  // The sums take 8 times the memory of x, so large tensors go in parts.
  constexpr int64_t most_bytes = int64_t{1} << 28;
  const int64_t part_bytes = s.cells() * Part::width(s) * int64_t{8 * sizeof(A)};
  const int64_t at_once = std::clamp<int64_t>(most_bytes / part_bytes, 1, parts);
  const Workspace sums(launch, at_once * part_bytes);
  for (int64_t first = 0; first < parts; first += at_once) {
    const int64_t threads = std::min(at_once, parts - first) * s.cells();
    for_each_index(launch, threads,
                   SumPoints<T, Int>{s, corners, first, y, grid, begins.as<Int>(), points, sums.as<A>()});
    for_each_index(launch, threads * Part::width(s), SumCorners<T>{s, corners, first, sums.as<A>(), x});
  }
}

}  // namespace

void grid_sample(const Tensor& x, const Tensor& grid, const GridSampling& s, Tensor& y) {
  const Launch launch("grid_sample", y, {&x, &grid});
  visit_floating_storage("grid_sample", y.dtype(), [&]<class T>(T) {
    // A thread takes all channels if there are enough points for the GPU.
    constexpr int64_t enough = int64_t{1} << 18;
    const int64_t wanted = std::clamp<int64_t>(enough / (s.batch * s.points), 1, s.channels);
    const int64_t channels = (s.channels + wanted - 1) / wanted,
                  parts = (s.channels + channels - 1) / channels;
    for_each_index(
        launch, s.batch * parts * s.points,
        Sample<T>{s, parts, channels, detail::ptr<T>(x), detail::ptr<T>(grid), detail::mutable_ptr<T>(y)});
  });
}

void grid_sample_adjoint(const Tensor& y, const Tensor& grid, const GridSampling& s, Tensor& x) {
  const Launch launch("grid_sample", x, {&y, &grid});
  const bool small = s.batch * std::max<int64_t>(s.points, s.cells()) < int64_t{1} << 31;
  visit_floating_storage("grid_sample", x.dtype(), [&]<class T>(T) {
    const auto run = small ? &adjoint<uint32_t, T> : &adjoint<uint64_t, T>;
    run(launch, s, detail::ptr<T>(y), detail::ptr<T>(grid), detail::mutable_ptr<T>(x));
  });
}

void grid_sample_gradient(const Tensor& g, const Tensor& x, const Tensor& grid, const GridSampling& s,
                          Tensor& grad_grid) {
  const Launch launch("grid_sample", grad_grid, {&g, &x, &grid});
  visit_floating_storage("grid_sample", grad_grid.dtype(), [&]<class T>(T) {
    for_each_index(launch, s.batch * s.points,
                   GridGradient<T>{s, detail::ptr<T>(g), detail::ptr<T>(x), detail::ptr<T>(grid),
                                   detail::mutable_ptr<T>(grad_grid)});
  });
}

}  // namespace vox::cuda

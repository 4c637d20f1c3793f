// grid_sample, its adjoint, and the gradient of its grid (Note [The grid_sample family] in
// ops/grid_sample.cpp).
//
// The result and the gradient of the grid: a thread owns one point, finds its taps once, and goes through
// channels. The adjoint: points are sorted by the cell at which their taps begin. A thread adds up the points
// that begin at its cell, a range of the sorted list, once for each of the 8 cells that they read (4 without
// D). Then each cell adds the sums that belong to it. In mode nearest a point reads one cell with weight 1,
// so the first sum is the result. The sort is stable, so every sum has one order, and there are no atomics.

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
  /// Of corner k: its steps along D, H, W are the bits of k.
  __device__ A product(int k) const { return weight[0][k / 4] * weight[1][k / 2 % 2] * weight[2][k % 2]; }
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
      weight[k] = taps.product(k);
      step[k] = d * s.step(0) + h * s.step(1) + w * s.step(2);
    }
    const T* from = x + (n * s.channels + begin) * cells + taps.cell(s);
    T* to = y + (n * s.channels + begin) * s.points + point;
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

/// Where the points of each cell begin and end in the sorted list. Cells without points keep what is there.
template <class Int>
struct FindRanges {
  int64_t count;
  const Int* keys;
  Int *begins, *ends;

  __device__ void operator()(int64_t j) const {
    const Int key = keys[j];
    if (j == 0 || keys[j - 1] != key) begins[key] = static_cast<Int>(j);
    if (j + 1 == count || keys[j + 1] != key) ends[key] = static_cast<Int>(j + 1);
  }
};

/// Where the weights of a point come from: all are 1, they follow from the grid, or, if several threads need
/// them, they lie in memory.
enum class Weights { ones, found, sorted };

/// weights (corners, count): those of the points in sorted order, for each of the cells that they read.
template <class T, class Int>
struct SortWeights {
  GridSampling s;
  int64_t count;
  int corners;
  const T* grid;
  const Int* points;
  opmath_t<T>* weights;

  __device__ void operator()(int64_t j) const {
    const Taps<opmath_t<T>> taps(s, grid, points[j]);
#pragma unroll
    for (int k = 0; k < 8; ++k)
      if (k < corners) weights[k * count + j] = taps.product(k);
  }
};

/// `size` channels of a sample, or what is left of them, which one thread takes.
template <int size>
struct Part {
  int64_t n, first, count;
  __device__ Part(const GridSampling& s, int64_t part) {
    const int64_t parts = (s.channels + size - 1) / size;
    n = part / parts, first = (part - n * parts) * size;
    count = s.channels - first < size ? s.channels - first : size;
  }
};

/// Thread i: (part, cell). sums (parts, size, corners, cells): what the points that begin at the cell add to
/// each cell that they read. If all weights are 1, x gets the sums.
template <class T, class Int, int size, Weights kind>
struct SumPoints {
  using A = opmath_t<T>;
  static constexpr int most = kind == Weights::ones ? 1 : 8;
  GridSampling s;
  int64_t first_part, count;
  int corners;
  const T *y, *grid;
  const Int *begins, *ends, *points;
  const A* weights;
  A* sums;
  T* x;

  __device__ void operator()(int64_t i) const {
    const int64_t cells = s.cells(), local = i / cells, cell = i - local * cells;
    const Part<size> part(s, first_part + local);
    const T* const from =
        y + (part.n * (s.channels - 1) + part.first) * s.points;  // plus the number of a point
    const Int end = ends[part.n * cells + cell];
    A sum[size][most] = {};
    for (Int j = begins[part.n * cells + cell]; j < end; ++j) {
      const Int point = points[j];
      A g[size], weight[most];
#pragma unroll
      for (int c = 0; c < size; ++c) g[c] = c < part.count ? A(from[c * s.points + point]) : A(0);
      if constexpr (kind == Weights::ones) {
        weight[0] = A(1);
      } else if constexpr (kind == Weights::found) {
        const Taps<A> taps(s, grid, point);
#pragma unroll
        for (int k = 0; k < most; ++k) weight[k] = taps.product(k);
      } else {
#pragma unroll
        for (int k = 0; k < most; ++k) weight[k] = k < corners ? weights[k * count + j] : A(0);
      }
#pragma unroll
      for (int k = 0; k < most; ++k)
#pragma unroll
        for (int c = 0; c < size; ++c) sum[c][k] += times(weight[k], g[c]);
    }
    if constexpr (kind == Weights::ones) {
      T* const to = x + (part.n * s.channels + part.first) * cells + cell;
#pragma unroll
      for (int c = 0; c < size; ++c)
        if (c < part.count) to[c * cells] = T(sum[c][0]);
    } else {
      A* const to = sums + local * size * corners * cells + cell;
#pragma unroll
      for (int c = 0; c < size; ++c)
#pragma unroll
        for (int k = 0; k < most; ++k)
          if (c < part.count && k < corners) to[(c * corners + k) * cells] = sum[c][k];
    }
  }
};

/// Thread i: (part, channel, cell).
template <class T, int size>
struct SumCorners {
  GridSampling s;
  int64_t first_part;
  int corners;
  const opmath_t<T>* sums;
  T* x;

  __device__ void operator()(int64_t i) const {
    const int64_t cells = s.cells(), local = i / cells, channel = local % size;
    const auto cell = static_cast<int32_t>(i - local * cells);
    const Part<size> part(s, first_part + local / size);
    if (channel >= part.count) return;
    const int32_t row = cell / s.size[2], w = cell - row * s.size[2], d = row / s.size[1],
                  h = row - d * s.size[1];
    const opmath_t<T>* const from = sums + local * corners * cells + cell;
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

/// Adds the sorted points up, `size` channels at a time. The sums take `corners` times the memory of x, so
/// large tensors go in parts.
template <int size, Weights kind, class Int, class T>
void add_up(const Launch& launch, SumPoints<T, Int, size, kind> points) {
  using A = opmath_t<T>;
  const GridSampling& s = points.s;
  const int64_t parts = s.batch * ((s.channels + size - 1) / size);
  if constexpr (kind == Weights::ones) {
    for_each_index(launch, parts * s.cells(), points);
  } else {
    constexpr int64_t most_bytes = int64_t{1} << 28;
    const int64_t part_bytes = s.cells() * points.corners * int64_t{size * sizeof(A)};
    const int64_t at_once = std::clamp<int64_t>(most_bytes / part_bytes, 1, parts);
    const Workspace sums(launch, at_once * part_bytes);
    points.sums = sums.as<A>();
    for (; points.first_part < parts; points.first_part += at_once) {
      const int64_t threads = std::min(at_once, parts - points.first_part) * s.cells();
      for_each_index(launch, threads, points);
      for_each_index(launch, threads * size,
                     SumCorners<T, size>{s, points.first_part, points.corners, points.sums, points.x});
    }
  }
}

template <class Int, class T>
void adjoint(const Launch& launch, const GridSampling& s, const T* y, const T* grid, T* x) {
  const int64_t count = s.batch * s.points, cells = s.batch * int64_t{s.cells()};
  constexpr auto size = static_cast<int64_t>(sizeof(Int));
  const Workspace unsorted(launch, 2 * count * size), sorted(launch, 2 * count * size),
      ranges(launch, 2 * (cells + 1) * size);
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
  launch.check(
      cudaMemsetAsync(ranges.as<char>(), 0, static_cast<size_t>(2 * (cells + 1) * size), launch.stream()));
  Int *const begins = ranges.as<Int>(), *const ends = begins + cells + 1;
  for_each_index(launch, count, FindRanges<Int>{count, sorted_keys, begins, ends});
  const int corners = s.axes == 2 ? 4 : 8;
  const auto add = [&]<int channels, Weights kind>(const opmath_t<T>* weights) {
    add_up(launch, SumPoints<T, Int, channels, kind>{s, 0, count, corners, y, grid, begins, ends, points,
                                                     weights, nullptr, x});
  };
  if (s.nearest)
    return s.channels == 1 ? add.template operator()<1, Weights::ones>(nullptr)
                           : add.template operator()<4, Weights::ones>(nullptr);
  if (s.channels == 1) return add.template operator()<1, Weights::found>(nullptr);
  if (s.channels <= 4) return add.template operator()<4, Weights::found>(nullptr);
  const Workspace weights(launch, corners * count * static_cast<int64_t>(sizeof(opmath_t<T>)));
  auto* const sorted_weights = weights.as<opmath_t<T>>();
  for_each_index(launch, count, SortWeights<T, Int>{s, count, corners, grid, points, sorted_weights});
  add.template operator()<4, Weights::sorted>(sorted_weights);
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

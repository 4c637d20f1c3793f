// grid_sample, its adjoint, and the gradient of its grid (Note [The grid_sample family] in
// ops/grid_sample.cpp).
//
// The result and the gradient of the grid: a thread owns one point, finds its taps once, and goes through
// channels. The adjoint goes through lists, one for each cell, of the points whose taps begin there. A thread
// adds up the points of its cell, once for each of the 8 cells that they read (4 without D), and the cells of
// a block exchange these sums. In mode nearest a point reads one cell with weight 1, so the first sum is the
// result. Lists are in the order of points, so every sum has one order, and no numbers are added by atomics.

#include <cub/device/device_scan.cuh>

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/cuda/for_each_index.cuh>

#include <algorithm>

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

/// What one point reads, by axis: D, H, W. Weights are slopes on the axes of s.slope, if `derived`.
template <class A, bool derived>
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
        weight[axis][k] = derived && s.slope[axis] ? tap.slope[k] : tap.weight[k];
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

/// A cell of weight 0 does not count, whatever lies there.
template <class A>
__device__ A times(A weight, A x) {
  return weight == 0 ? A(0) : weight * x;
}

/// `count` channels from `first` on, of sample n, as part `part` of all samples in parts of `size` channels.
struct Part {
  int64_t n, first, count;
  __device__ Part(const GridSampling& s, int64_t part, int64_t size) {
    const int64_t parts = size < s.channels ? (s.channels + size - 1) / size : 1;
    n = parts == 1 ? part : part / parts, first = (part - n * parts) * size;
    count = s.channels - first < size ? s.channels - first : size;
  }
};

/// Thread i: (part of `size` channels, point). `corners` is 1 for mode nearest, 4 without D, else 8.
template <class T, int corners, bool derived>
struct Sample {
  using A = opmath_t<T>;
  GridSampling s;
  int64_t size;
  const T *x, *grid;
  T* y;

  __device__ void operator()(int64_t i) const {
    const int64_t of = i / s.points, point = i - of * s.points, cells = s.cells();
    const Part part(s, of, size);
    const Taps<A, derived> taps(s, grid, part.n * s.points + point);
    A weight[corners];
    int32_t step[corners];
#pragma unroll
    for (int k = 0; k < corners; ++k) {
      const int d = k / 4, h = k / 2 % 2, w = k % 2;
      weight[k] = taps.product(k);
      step[k] = d * s.step(0) + h * s.step(1) + w * s.step(2);
    }
    const int64_t plane = part.n * s.channels + part.first;
    const T* __restrict__ from = x + plane * cells + taps.cell(s);
    T* __restrict__ to = y + plane * s.points + point;
#pragma unroll(corners == 1 ? 8 : 2)
    for (int64_t c = 0; c < part.count; ++c, from += cells, to += s.points) {
      A value[corners], sum = 0;  // all are read before the first is used
#pragma unroll
      for (int k = 0; k < corners; ++k) value[k] = A(from[step[k]]);
#pragma unroll
      for (int k = 0; k < corners; ++k) sum += times(weight[k], value[k]);
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
    const Taps<A, false> taps(s, grid, i);
    const T* from = x + n * s.channels * cells + taps.cell(s);
    const T* grad_y = g + (s.channels - 1) * n * s.points + i;
    const auto &weight = taps.weight, &slope = taps.slope;
    A along[3] = {};
#pragma unroll 2
    for (int64_t c = 0; c < s.channels; ++c, from += cells, grad_y += s.points) {
      const A g_c = A(*grad_y);
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
      for (int axis = 0; axis < 3; ++axis) along[axis] += g_c * sum[axis];
    }
#pragma unroll
    for (int axis = 0; axis < 3; ++axis)
      if (axis >= 3 - s.axes) grad_grid[i * s.axes + 2 - axis] = T(along[axis]);
  }
};

/// The lists of points by cell (of all samples): those of a cell lie in points[begins[cell]] to
/// points[begins[cell + 1] - 1].
template <class Int>
struct Lists {
  int64_t cells;
  Int *begins, *points;
  // While the lists are made: by point, its cell and its place in the list; the lists that are long.
  Int *cell_of, *place_of, *long_lists, *long_count;
};

/// The weights of a point, by axis.
template <class A>
struct alignas(2 * sizeof(A)) AxisWeights {
  A of[3][2];
};

/// Thread i: a point. Finds its cell and a place in its list, which depends on the order of threads; begins
/// counts. A point that reads nothing is in no list. `weights`, which is null for mode nearest, gets those of
/// the point.
template <class T, class Int>
struct CountPoints {
  using A = opmath_t<T>;
  GridSampling s;
  const T* grid;
  Lists<Int> lists;
  AxisWeights<A>* weights;

  __device__ void operator()(int64_t i) const {
    const Taps<A, true> taps(s, grid, i);
    if (weights) {
      AxisWeights<A> own;
#pragma unroll
      for (int k = 0; k < 6; ++k) own.of[k / 2][k % 2] = taps.weight[k / 2][k % 2];
      weights[i] = own;
    }
    const int64_t n = s.batch == 1 ? 0 : i / s.points;
    const int64_t cell = taps.reads_nothing() ? lists.cells : n * s.cells() + taps.cell(s);
    lists.cell_of[i] = static_cast<Int>(cell);
    if (cell < lists.cells) lists.place_of[i] = atomicAdd(lists.begins + cell, Int(1));
  }
};

/// Thread i: a point.
template <class Int>
struct WritePoints {
  Lists<Int> lists;

  __device__ void operator()(int64_t i) const {
    const Int cell = lists.cell_of[i];
    if (cell < lists.cells) lists.points[lists.begins[cell] + lists.place_of[i]] = static_cast<Int>(i);
  }
};

/// Thread i: a cell, whose list it sorts, or notes as long.
template <class Int>
struct SortLists {
  static constexpr Int most = 32;
  Lists<Int> lists;

  __device__ void operator()(int64_t i) const {
    Int* const list = lists.points + lists.begins[i];
    const Int count = lists.begins[i + 1] - lists.begins[i];
    if (count > most) {
      lists.long_lists[atomicAdd(lists.long_count, Int(1))] = static_cast<Int>(i);
      return;
    }
    for (Int j = 1; j < count; ++j) {
      const Int point = list[j];
      Int to = j;
      for (; to > 0 && list[to - 1] > point; --to) list[to] = list[to - 1];
      list[to] = point;
    }
  }
};

/// A block sorts a list at a time: ordered runs of `half` points are joined in pairs (Batcher's bitonic
/// merge), beginning with a comparison from both ends. So a list whose length is no power of two is sorted as
/// if larger numbers followed it, which never move.
template <class Int>
__global__ void sort_long_lists(Lists<Int> lists) {
  for (Int l = blockIdx.x; l < *lists.long_count; l += gridDim.x) {
    const Int cell = lists.long_lists[l], count = lists.begins[cell + 1] - lists.begins[cell];
    Int* const list = lists.points + lists.begins[cell];
    for (Int half = 1; half < count; half *= 2) {
      for (Int step = half; step > 0; step /= 2) {
        for (Int i = threadIdx.x; i < count; i += blockDim.x) {
          const Int other = step == half ? i ^ (2 * half - 1) : i ^ step;
          if (other <= i || other >= count) continue;
          const Int a = list[i], b = list[other];
          if (a > b) list[i] = b, list[other] = a;
        }
        __syncthreads();
      }
    }
  }
}

/// Thread i: (part of `size` channels, cell). The adjoint of mode nearest.
template <class T, class Int>
struct AddNearest {
  static constexpr int size = 4;
  GridSampling s;
  const T* y;
  Lists<Int> lists;
  T* x;

  __device__ void operator()(int64_t i) const {
    const int64_t cells = s.cells(), of = i / cells, cell = i - of * cells;
    const Part part(s, of, size);
    const T* const from = y + (part.n * (s.channels - 1) + part.first) * s.points;
    const Int* const begin = lists.begins + part.n * cells + cell;
    opmath_t<T> sum[size] = {};
    for (Int j = begin[0]; j < begin[1]; ++j) {
      const Int point = lists.points[j];
#pragma unroll
      for (int c = 0; c < size; ++c)
        if (c < part.count) sum[c] += opmath_t<T>(from[c * s.points + point]);
    }
    T* const to = x + (part.n * s.channels + part.first) * cells + cell;
#pragma unroll
    for (int c = 0; c < size; ++c)
      if (c < part.count) to[c * cells] = T(sum[c]);
  }
};

/// The adjoint of mode linear. A block goes along D through the cells of a tile in H and W. What a thread has
/// for the next cell along D waits in `carry`; what it has for its neighbours along H and W is passed through
/// shared memory. So a tile has one more row and column of threads, at its low side, whose cells belong to
/// other blocks.
template <class T, class Int, int size>
struct AddLinear {
  using A = opmath_t<T>;
  static constexpr int height = 8, width = 32, pitch = width + 1, depth = size == 1 ? 8 : 32;
  static constexpr int threads = (pitch * (height + 1) + 31) / 32 * 32;
  GridSampling s;
  const T* y;
  const AxisWeights<A>* weights;
  Lists<Int> lists;
  T* x;
  int32_t chunks, rows, columns;  // of tiles, along D, H and W

  /// sum[c][k] += what the points of the list add to corner k in channel c of the part.
  __device__ void add_points(const Part& part, Int begin, Int end, A (&sum)[size][8]) const {
    const T* const from = y + (part.n * (s.channels - 1) + part.first) * s.points;  // plus the point's number
    Int next = begin < end ? lists.points[begin] : Int(0);
    for (Int j = begin; j < end; ++j) {
      const Int point = next;
      if (j + 1 < end) next = lists.points[j + 1];
      A g[size];
#pragma unroll
      for (int c = 0; c < size; ++c) g[c] = c < part.count ? A(from[c * s.points + point]) : A(0);
      const AxisWeights<A> own = weights[point];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const A weight = own.of[0][k / 4] * own.of[1][k / 2 % 2] * own.of[2][k % 2];
#pragma unroll
        for (int c = 0; c < size; ++c) sum[c][k] += times(weight, g[c]);
      }
    }
  }

  __device__ void operator()(int64_t tile) const {
    __shared__ A passed[3][size][threads];
    const int t = threadIdx.x, row = t / pitch, column = t % pitch;
    const int64_t planes = tile / columns, slices = planes / rows;
    const Part part(s, slices / chunks, size);
    const auto w = static_cast<int32_t>(tile - planes * columns) * width + column - 1;
    const auto h = static_cast<int32_t>(planes - slices * rows) * height + row - 1;
    const auto first = static_cast<int32_t>(slices % chunks) * depth;
    const int32_t last = min(first + depth, s.size[0]), plane = s.size[1] * s.size[2];
    const bool exists = row <= height && h >= 0 && h < s.size[1] && w >= 0 && w < s.size[2];
    const bool owns = exists && row > 0 && column > 0;
    const int32_t cell = h * s.size[2] + w;  // plus d planes
    const Int* const begins = lists.begins + part.n * s.cells() + cell;
    T* const to = x + (part.n * s.channels + part.first) * s.cells() + cell;
    A carry[size][4] = {};
    int32_t d = max(first - 1, 0);
    Int begin = exists ? begins[d * plane] : Int(0), end = exists ? begins[d * plane + 1] : Int(0);
    for (; d < last; ++d) {
      const bool goes_on = exists && d + 1 < last;
      const Int next_begin = goes_on ? begins[(d + 1) * plane] : Int(0),
                next_end = goes_on ? begins[(d + 1) * plane + 1] : Int(0);
      A sum[size][8] = {};
      add_points(part, begin, end, sum);
      begin = next_begin, end = next_end;
#pragma unroll
      for (int c = 0; c < size; ++c) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          sum[c][k] += carry[c][k];
          carry[c][k] = sum[c][4 + k];
          if (k > 0) passed[k - 1][c][t] = sum[c][k];
        }
      }
      __syncthreads();
      if (owns && d >= first) {
#pragma unroll
        for (int c = 0; c < size; ++c)
          if (c < part.count)
            to[c * int64_t{s.cells()} + d * plane] =
                T(sum[c][0] + passed[0][c][t - 1] + passed[1][c][t - pitch] + passed[2][c][t - pitch - 1]);
      }
      __syncthreads();
    }
  }
};

template <class F>
__global__ void __launch_bounds__(F::threads, 2) for_each_tile(int64_t tiles, F f) {
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) f(i);
}

template <class Int, class T>
void adjoint(const Launch& launch, const GridSampling& s, const T* y, const T* grid, T* x) {
  const int64_t count = s.batch * s.points, cells = s.batch * int64_t{s.cells()}, size = sizeof(Int);
  const Workspace by_cell(launch, (cells + 2) * size), by_point(launch, 3 * count * size);
  const Workspace by_axis(launch, s.nearest ? 0 : count * int64_t{sizeof(AxisWeights<opmath_t<T>>)});
  auto* const weights = by_axis.as<AxisWeights<opmath_t<T>>>();
  Lists<Int> lists{cells, by_cell.as<Int>(), by_point.as<Int>()};
  lists.cell_of = lists.points + count, lists.place_of = lists.cell_of + count;
  lists.long_lists = lists.place_of, lists.long_count = lists.begins + cells + 1;
  launch.check(cudaMemsetAsync(lists.begins, 0, static_cast<size_t>((cells + 2) * size), launch.stream()));
  for_each_index(launch, count, CountPoints<T, Int>{s, grid, lists, weights});
  size_t bytes = 0;
  const auto add_counts = [&](void* memory) {
    launch.check(
        cub::DeviceScan::ExclusiveSum(memory, bytes, lists.begins, lists.begins, cells + 1, launch.stream()));
  };
  add_counts(nullptr);
  const Workspace memory(launch, static_cast<int64_t>(bytes));
  add_counts(memory.as<char>());
  for_each_index(launch, count, WritePoints<Int>{lists});
  for_each_index(launch, cells, SortLists<Int>{lists});
  sort_long_lists<<<256, 1024, 0, launch.stream()>>>(lists);
  launch.check();

  const auto parts = [&](int64_t of) { return s.batch * ((s.channels + of - 1) / of); };
  if (s.nearest) {
    using Add = AddNearest<T, Int>;
    return for_each_index(launch, parts(Add::size) * s.cells(), Add{s, y, lists, x});
  }
  const auto tiles = [](int32_t length, int side) { return (length + side - 1) / side; };
  const auto add = [&]<int channels>() {
    using Add = AddLinear<T, Int, channels>;
    const Add f{.s = s,
                .y = y,
                .weights = weights,
                .lists = lists,
                .x = x,
                .chunks = tiles(s.size[0], Add::depth),
                .rows = tiles(s.size[1], Add::height),
                .columns = tiles(s.size[2], Add::width)};
    const int64_t n = parts(channels) * f.chunks * f.rows * f.columns;
    for_each_tile<<<grid_for(n, 1), Add::threads, 0, launch.stream()>>>(n, f);
    launch.check();
  };
  s.channels == 1 ? add.template operator()<1>() : add.template operator()<16 / sizeof(opmath_t<T>)>();
}

}  // namespace

void grid_sample(const Tensor& x, const Tensor& grid, const GridSampling& s, Tensor& y) {
  const Launch launch("grid_sample", y, {&x, &grid});
  visit_floating_storage("grid_sample", y.dtype(), [&]<class T>(T) {
    // A thread takes all channels if there are enough points for the GPU.
    constexpr int64_t enough = int64_t{1} << 18;
    const int64_t wanted = std::clamp<int64_t>(enough / (s.batch * s.points), 1, s.channels);
    const int64_t size = (s.channels + wanted - 1) / wanted, parts = (s.channels + size - 1) / size;
    const auto sample = [&]<int corners, bool derived>() {
      for_each_index(launch, s.batch * parts * s.points,
                     Sample<T, corners, derived>{s, size, detail::ptr<T>(x), detail::ptr<T>(grid),
                                                 detail::mutable_ptr<T>(y)});
    };
    if (s.nearest) return sample.template operator()<1, false>();
    if (s.slope[0] || s.slope[1] || s.slope[2]) return sample.template operator()<8, true>();
    s.axes == 2 ? sample.template operator()<4, false>() : sample.template operator()<8, false>();
  });
}

void grid_sample_adjoint(const Tensor& y, const Tensor& grid, const GridSampling& s, Tensor& x) {
  const Launch launch("grid_sample", x, {&y, &grid});
  const bool small = s.batch * std::max<int64_t>(s.points, s.cells()) < int64_t{1} << 31;
  visit_floating_storage("grid_sample", x.dtype(), [&]<class T>(T) {
    const auto run = small ? &adjoint<unsigned, T> : &adjoint<unsigned long long, T>;
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

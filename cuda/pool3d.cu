// Pooling and its gradients. There are no atomics: a cell sums its windows in their order.
//
// Any windows: one thread owns a column of the result and gathers its elements, by the formulas of
// pool3d_window.h, which the CPU shares. A window reads about one kernel volume, most of it from cache.
//
// Blocks, windows of 2 x 2 x 2 or 1 x 2 x 2 cells side by side: one thread owns some blocks along W, and
// moves 16 bytes of each of their rows at a time. So every byte of x is read or written once, in both
// directions. The index of a maximum is then a byte, the number of its cell within the block.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/cuda/columns.cuh>
#include <voxgrad/cuda/for_each_index.cuh>

#include <initializer_list>
#include <limits>

namespace vox::cuda {

namespace {

// ---- Any windows ----------------------------------------------------------------------------------------

/// Calls f(window, its index within the plane, its cells) for the windows of a column.
template <class F>
__device__ void for_windows(const Pool3dGeometry& g, const Column& column, F f) {
  const PoolRange h = g.axis(1).covered_cells(column.h), w = g.axis(2).covered_cells(column.w);
  for (int64_t d = column.begin; d < column.end; ++d)
    f(Triple(d, column.h, column.w), (d * g.out.h + column.h) * g.out.w + column.w,
      PoolBox{g.axis(0).covered_cells(d), h, w});
}

/// Calls f(index of a cell within the plane, the windows over it) for the cells of a column.
template <class F>
__device__ void for_cells(const Pool3dGeometry& g, const Column& column, F f) {
  const PoolRange h = g.axis(1).windows_over(column.h), w = g.axis(2).windows_over(column.w);
  for (int64_t d = column.begin; d < column.end; ++d)
    f((d * g.in.h + column.h) * g.in.w + column.w, PoolBox{g.axis(0).windows_over(d), h, w});
}

/// The columns of a result of this size, and numel elements.
Columns columns_of(int64_t numel, const Triple& size) {
  return {numel / (size.d * size.h * size.w), size.d, size.h, size.w};
}

template <class T>
struct MaxPool {
  Columns columns;
  Pool3dGeometry geometry;
  T lowest;  // of a window without cells
  const T* x;
  T* y;
  int64_t* indices;  // or null

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const T* plane = x + column.plane * geometry.cells();
    const int64_t first = column.plane * geometry.windows();
    for_windows(geometry, column, [&](const Triple&, int64_t o, const PoolBox& cells) {
      const int64_t best = max_index(plane, geometry, cells);
      y[first + o] = best < 0 ? lowest : plane[best];
      if (indices) indices[first + o] = best;
    });
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
  Columns columns;
  Pool3dGeometry geometry;
  const T* y;
  const int64_t* indices;
  T* x;

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const int64_t first = column.plane * geometry.windows();
    T* plane = x + column.plane * geometry.cells();
    for_cells(geometry, column, [&](int64_t i, const PoolBox& windows) {
      plane[i] = T(max_gradient(y + first, indices + first, geometry, windows, i));
    });
  }
};

template <class T>
struct AvgPool {
  Columns columns;
  Pool3dGeometry geometry;
  const T* x;
  T* y;

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const T* plane = x + column.plane * geometry.cells();
    T* to = y + column.plane * geometry.windows();
    for_windows(geometry, column, [&](const Triple& window, int64_t o, const PoolBox& cells) {
      to[o] = T(window_mean(plane, geometry, cells, window));
    });
  }
};

template <class T>
struct AvgPoolAdjoint {
  Columns columns;
  Pool3dGeometry geometry;
  const T* y;
  T* x;

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const T* from = y + column.plane * geometry.windows();
    T* plane = x + column.plane * geometry.cells();
    for_cells(geometry, column, [&](int64_t i, const PoolBox& windows) {
      plane[i] = T(mean_gradient(from, geometry, windows));
    });
  }
};

// ---- Blocks ---------------------------------------------------------------------------------------------

template <class T, int n>
struct alignas(n * sizeof(T)) Chunk {
  T lane[n];
};

/// The blocks of one thread: `count` of them, side by side along W, each with `depth` slices of two rows of
/// two cells. Cell k of a block is cell k % 2 of its row k / 2. `packed` rows are aligned, and 16 bytes of x.
template <class T, int depth_, bool packed>
struct Blocks {
  static constexpr int depth = depth_, rows = 2 * depth, cells = 2 * rows;
  static constexpr int count = packed ? 8 / sizeof(T) : 1;
  using Row = Chunk<T, 2 * count>;
  int64_t per_row;  // threads
  Triple in, out;

  __host__ __device__ explicit Blocks(const Pool3dGeometry& g)
      : per_row(g.out.w / count), in(g.in), out(g.out) {}

  /// Indices of the first block in y, and of its first cell in x.
  struct Place {
    int64_t window, cell;
  };
  __device__ Place operator[](int64_t n) const {
    const int64_t row = n / per_row, slice = row / out.h, plane = slice / out.d;
    const int64_t w = (n - row * per_row) * count, h = row - slice * out.h, d = slice - plane * out.d;
    return {row * out.w + w, ((plane * in.d + depth * d) * in.h + 2 * h) * in.w + 2 * w};
  }
  /// Distance of row r from the first cell.
  __device__ int64_t row(int r) const { return (r / 2 * in.h + r % 2) * in.w; }

  template <class C, class U>
  static __device__ C load(const U* from) {
    if constexpr (packed) {
      return *reinterpret_cast<const C*>(from);
    } else {
      C chunk;
#pragma unroll
      for (size_t i = 0; i < sizeof(C) / sizeof(U); ++i) chunk.lane[i] = from[i];
      return chunk;
    }
  }
  template <class C, class U>
  static __device__ void store(const C& chunk, U* to) {
    if constexpr (packed) {
      *reinterpret_cast<C*>(to) = chunk;
    } else {
#pragma unroll
      for (size_t i = 0; i < sizeof(C) / sizeof(U); ++i) to[i] = chunk.lane[i];
    }
  }

  /// y = f(cell), of block b, where cell(k) is its cell k.
  template <class F>
  __device__ void gather(int64_t n, const T* x, F f) const {
    const Place at = (*this)[n];
    Row row_of[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) row_of[r] = load<Row>(x + at.cell + row(r));
#pragma unroll
    for (int b = 0; b < count; ++b) f(b, [&](int k) { return row_of[k / 2].lane[2 * b + k % 2]; });
  }
  /// Cell k of block b of x = f(b, k).
  template <class F>
  __device__ void scatter(int64_t n, T* x, F f) const {
    const Place at = (*this)[n];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      Row row_r;
#pragma unroll
      for (int i = 0; i < 2 * count; ++i) row_r.lane[i] = f(i / 2, 2 * r + i % 2);
      store(row_r, x + at.cell + row(r));
    }
  }
};

template <class T, class B>
struct MaxOfBlocks {
  B blocks;
  const T* x;
  T* y;
  uint8_t* indices;  // or null

  __device__ void operator()(int64_t n) const {
    Chunk<T, B::count> best;
    Chunk<uint8_t, B::count> best_at;
    blocks.gather(n, x, [&](int b, auto cell) {
      best.lane[b] = cell(0), best_at.lane[b] = 0;
#pragma unroll
      for (int k = 1; k < B::cells; ++k) {
        const T v = cell(k);
        if (v > best.lane[b] || v != v) best.lane[b] = v, best_at.lane[b] = static_cast<uint8_t>(k);
      }
    });
    const int64_t window = blocks[n].window;
    B::store(best, y + window);
    if (indices) B::store(best_at, indices + window);
  }
};

template <class T, class B>
struct TakeFromBlocks {
  B blocks;
  const T* x;
  const uint8_t* indices;
  T* y;

  __device__ void operator()(int64_t n) const {
    const auto at = blocks[n];
    for (int b = 0; b < B::count; ++b) {
      const int k = indices[at.window + b];
      y[at.window + b] = x[at.cell + blocks.row(k / 2) + 2 * b + k % 2];
    }
  }
};

template <class T, class B>
struct GiveToBlocks {
  B blocks;
  const T* y;
  const uint8_t* indices;
  T* x;

  __device__ void operator()(int64_t n) const {
    const int64_t window = blocks[n].window;
    const auto given = B::template load<Chunk<T, B::count>>(y + window);
    const auto at = B::template load<Chunk<uint8_t, B::count>>(indices + window);
    blocks.scatter(n, x, [&](int b, int k) {
      return at.lane[b] == k ? T(opmath_t<T>(0) + given.lane[b])
                             : T(0);  // 0 + turns -0 into +0, like any sum
    });
  }
};

template <class T, class B>
struct MeanOfBlocks {
  B blocks;
  opmath_t<T> divisor;
  const T* x;
  T* y;

  __device__ void operator()(int64_t n) const {
    Chunk<T, B::count> mean;
    blocks.gather(n, x, [&](int b, auto cell) {
      opmath_t<T> sum = 0;
#pragma unroll
      for (int k = 0; k < B::cells; ++k) sum += cell(k);
      mean.lane[b] = T(sum / divisor);
    });
    B::store(mean, y + blocks[n].window);
  }
};

template <class T, class B>
struct MeanOfBlocksAdjoint {
  B blocks;
  opmath_t<T> divisor;
  const T* y;
  T* x;

  __device__ void operator()(int64_t n) const {
    auto given = B::template load<Chunk<T, B::count>>(y + blocks[n].window);
#pragma unroll
    for (T& value : given.lane) value = T(opmath_t<T>(0) + value / divisor);
    blocks.scatter(n, x, [&](int b, int) { return given.lane[b]; });
  }
};

/// Calls run(blocks) for the kind of Blocks that fits, and launches what it returns.
template <class T, class Run>
void for_blocks(const Launch& launch, const Pool3dGeometry& g, int64_t windows,
                std::initializer_list<const void*> operands, Run run) {
  bool packed = g.in.w == 2 * g.out.w && g.in.w % static_cast<int64_t>(16 / sizeof(T)) == 0;
  for (const void* p : operands) packed = packed && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  const auto launch_with = [&](auto blocks) { for_each_index(launch, windows / blocks.count, run(blocks)); };
  if (g.kernel.d == 2)
    packed ? launch_with(Blocks<T, 2, true>(g)) : launch_with(Blocks<T, 2, false>(g));
  else
    packed ? launch_with(Blocks<T, 1, true>(g)) : launch_with(Blocks<T, 1, false>(g));
}

/// Zeroes x, which is to be a result, if it has cells outside all blocks.
void clear_rest(const Launch& launch, const Pool3dGeometry& g, Tensor& x) {
  if (g.cells() == g.windows() * g.kernel.d * 4) return;
  launch.check(cudaMemsetAsync(x.impl()->data(), 0,
                               static_cast<size_t>(x.numel()) * static_cast<size_t>(size_of(x.dtype())),
                               launch.stream()));
}

}  // namespace

void max_pool3d(const Tensor& x_of_any_strides, const Pool3dGeometry& g, Tensor& y, Tensor& indices) {
  const Tensor x = x_of_any_strides.contiguous();
  const Launch launch("max_pool3d", y, {&x, &indices});
  visit_floating_storage("max_pool3d", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    if (g.is_blocks() && (!indices.defined() || indices.dtype() == u8)) {
      uint8_t* index = indices.defined() ? detail::mutable_ptr<uint8_t>(indices) : nullptr;
      return for_blocks<T>(launch, g, y.numel(), {from, to, index}, [&]<class B>(const B& blocks) {
        return MaxOfBlocks<T, B>{blocks, from, to, index};
      });
    }
    const Columns columns = columns_of(y.numel(), g.out);
    for_each_index(launch, columns.count(),
                   MaxPool<T>{columns, g, T(-std::numeric_limits<opmath_t<T>>::infinity()), from, to,
                              indices.defined() ? detail::mutable_ptr<int64_t>(indices) : nullptr});
  });
}

void max_pool3d_take(const Tensor& x, const Tensor& indices, const Pool3dGeometry& g, Tensor& y) {
  const Launch launch("max_pool3d_take", y, {&x, &indices});
  visit_floating_storage("max_pool3d_take", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    if (indices.dtype() == u8) {
      const uint8_t* index = detail::ptr<uint8_t>(indices);
      return for_blocks<T>(launch, g, y.numel(), {from, to, index}, [&]<class B>(const B& blocks) {
        return TakeFromBlocks<T, B>{blocks, from, index, to};
      });
    }
    for_each_index(launch, y.numel(), MaxPoolTake<T>{g, from, detail::ptr<int64_t>(indices), to});
  });
}

void max_pool3d_give(const Tensor& y, const Tensor& indices, const Pool3dGeometry& g, Tensor& x) {
  const Launch launch("max_pool3d_give", x, {&y, &indices});
  visit_floating_storage("max_pool3d_give", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    T* to = detail::mutable_ptr<T>(x);
    if (indices.dtype() == u8) {
      clear_rest(launch, g, x);
      const uint8_t* index = detail::ptr<uint8_t>(indices);
      return for_blocks<T>(launch, g, y.numel(), {from, to, index}, [&]<class B>(const B& blocks) {
        return GiveToBlocks<T, B>{blocks, from, index, to};
      });
    }
    const Columns columns = columns_of(x.numel(), g.in);
    for_each_index(launch, columns.count(),
                   MaxPoolGive<T>{columns, g, from, detail::ptr<int64_t>(indices), to});
  });
}

void avg_pool3d(const Tensor& x_of_any_strides, const Pool3dGeometry& g, Tensor& y) {
  const Tensor x = x_of_any_strides.contiguous();
  const Launch launch("avg_pool3d", y, {&x});
  visit_floating_storage("avg_pool3d", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    if (!g.is_blocks()) {
      const Columns columns = columns_of(y.numel(), g.out);
      return for_each_index(launch, columns.count(), AvgPool<T>{columns, g, from, to});
    }
    const auto by = static_cast<opmath_t<T>>(divisor(g, 0));
    for_blocks<T>(launch, g, y.numel(), {from, to}, [&]<class B>(const B& blocks) {
      return MeanOfBlocks<T, B>{blocks, by, from, to};
    });
  });
}

void avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& g, Tensor& x) {
  const Launch launch("avg_pool3d_adjoint", x, {&y});
  visit_floating_storage("avg_pool3d_adjoint", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    T* to = detail::mutable_ptr<T>(x);
    if (!g.is_blocks()) {
      const Columns columns = columns_of(x.numel(), g.in);
      return for_each_index(launch, columns.count(), AvgPoolAdjoint<T>{columns, g, from, to});
    }
    clear_rest(launch, g, x);
    const auto by = static_cast<opmath_t<T>>(divisor(g, 0));
    for_blocks<T>(launch, g, y.numel(), {from, to}, [&]<class B>(const B& blocks) {
      return MeanOfBlocksAdjoint<T, B>{blocks, by, from, to};
    });
  });
}

}  // namespace vox::cuda

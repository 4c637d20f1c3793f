#pragma once

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/pool3d_window.h>
#include <voxgrad/cuda/columns.cuh>
#include <voxgrad/cuda/for_each_index.cuh>

#include <cstdint>
#include <initializer_list>

// Pooling, and its gradients, if the windows are blocks: 2 x 2 x 2 or 1 x 2 x 2 cells side by side
// (Pool3dGeometry::is_blocks). One thread owns some blocks along W, and moves 16 bytes of each of their rows
// at a time; or single elements, if they are f64 or not aligned. Every byte of x moves once, in both ways.

namespace vox::cuda {

/// The blocks of one thread: `count` of them, side by side along W, each with `depth` slices of two rows of
/// two cells. Cell k of a block is cell k % 2 of its row k / 2. `packed` rows are aligned, and 16 bytes of x.
template <class T, int depth_, bool packed>
struct Blocks {
  static constexpr int depth = depth_, rows = 2 * depth, cells = 2 * rows;
  static constexpr int count = packed ? 8 / sizeof(T) : 1;
  using Row = Packet<T, 2 * count>;
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
      store_packet(chunk, to);
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
    Packet<T, B::count> best;
    Packet<uint8_t, B::count> best_at;
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
struct GiveToBlocks {
  B blocks;
  const T* y;
  const uint8_t* indices;
  T* x;

  __device__ void operator()(int64_t n) const {
    const int64_t window = blocks[n].window;
    const auto given = B::template load<Packet<T, B::count>>(y + window);
    const auto at = B::template load<Packet<uint8_t, B::count>>(indices + window);
    blocks.scatter(n, x, [&](int b, int k) {
      return at.lane[b] == k ? T(opmath_t<T>(0) + given.lane[b])
                             : T(0);  // 0 + turns -0 into +0, like any sum
    });
  }
};

template <class T, class B>
struct MeanOfBlocks {
  B blocks;
  opmath_t<T> divisor;  // the number of cells
  const T* x;
  T* y;

  __device__ void operator()(int64_t n) const {
    Packet<T, B::count> mean;
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
    auto given = B::template load<Packet<T, B::count>>(y + blocks[n].window);
#pragma unroll
    for (T& value : given.lane) value = T(opmath_t<T>(0) + value / divisor);
    blocks.scatter(n, x, [&](int b, int) { return given.lane[b]; });
  }
};

/// Calls run(blocks) for the kind of Blocks that fits, and launches what it returns, for y with `windows`
/// elements.
template <class T, class Run>
void for_blocks(const Launch& launch, const Pool3dGeometry& g, int64_t windows,
                std::initializer_list<const void*> operands, Run run) {
  constexpr bool packs = sizeof(T) < 8;  // two numbers of 8 bytes fill the same sectors
  bool packed = packs && g.in.w == 2 * g.out.w && g.in.w % static_cast<int64_t>(16 / sizeof(T)) == 0;
  for (const void* p : operands) packed = packed && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  const auto launch_with = [&](auto blocks) { for_each_index(launch, windows / blocks.count, run(blocks)); };
  if (g.kernel.d == 2)
    packed ? launch_with(Blocks<T, 2, packs>(g)) : launch_with(Blocks<T, 2, false>(g));
  else
    packed ? launch_with(Blocks<T, 1, packs>(g)) : launch_with(Blocks<T, 1, false>(g));
}

/// Zeroes x, which is to be a result, if it has cells outside all blocks.
template <class T>
void clear_rest(const Launch& launch, const Pool3dGeometry& g, int64_t windows, T* x) {
  if (g.cells() == g.windows() * g.kernel.d * 4) return;
  const auto cells = static_cast<size_t>(windows / g.windows() * g.cells());
  launch.check(cudaMemsetAsync(x, 0, cells * sizeof(T), launch.stream()));
}

}  // namespace vox::cuda

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/ops/reduce_ops.h>
#include <voxgrad/cuda/for_each_index.cuh>

#include <cstdint>
#include <type_traits>

// Reductions on CUDA.
//
// Order: a row of up to 32 elements is added from first to last. A longer one is cut into blocks of 1024. In
// a block, element i goes to lane i % 32, and the 32 lanes are combined in a binary tree. The results of the
// blocks form a new row, which the next launch reduces in the same way. So the order depends only on the
// row's length.
//
// Who computes what: a thread owns a short row. If the elements of a long row are contiguous, a warp owns a
// block of it, one lane per thread. If instead neighbouring rows are contiguous, a thread block owns the same
// block of 32 rows, 4 lanes per thread, so that a warp still reads neighbours. Every result has one owner, so
// there are no atomics.
//
// Bytes: each element is read once; block results add 1/1024 of that. Block results of bf16 and f16 are f32.

namespace vox::cuda {
namespace {

using detail::lift;
using detail::offset_of;
using detail::RowView;

constexpr int64_t block = reduce_block_size;
constexpr int64_t short_length = 32;
constexpr int lanes = 32;
constexpr int threads = 256;  // 8 warps: enough to hide the latency of memory
constexpr unsigned all_lanes = 0xffffffff;

/// Where results go: to y if a row was one block, else to the row of block results. Y is the element type of
/// y.
template <class Op, class Y>
struct Target {
  typename Op::Acc* partial;
  Y* y;
  int64_t length;  // of the rows of x

  __device__ void store(int64_t i, typename Op::Acc a) const {
    if (partial)
      partial[i] = a;
    else
      y[i] = static_cast<Y>(Op::finish(a, length));
  }
};

template <class A>
__device__ A shuffle_down(A a, int distance) {
  if constexpr (!std::is_arithmetic_v<A>)
    return {shuffle_down(a.value, distance), shuffle_down(a.index, distance)};
  else if constexpr (sizeof(A) < 4)
    return static_cast<A>(__shfl_down_sync(all_lanes, static_cast<unsigned>(a), distance));
  else
    return __shfl_down_sync(all_lanes, a, distance);
}

/// Block number b of the rows of `v`, as offsets from the row's first element.
struct Block {
  int64_t first, n;

  __device__ Block(const RowView& v, int64_t b)
      : first(b * block), n(v.length - first < block ? v.length - first : block) {}

  /// Calls f(i, offset) for elements from, from + step, ...
  template <class F>
  __device__ void for_each(const RowView& v, int64_t from, int step, F f) const {
    const bool one_piece = first % v.reduced.back() + n <= v.reduced.back();  // one stride reaches all of it
    if (one_piece) {
      const int64_t start = offset_of(v.reduced, v.reduced_strides, first), stride = v.reduced_strides.back();
#pragma unroll 8
      for (int64_t i = from; i < n; i += step) f(i, start + i * stride);
    } else {
#pragma unroll 1
      for (int64_t i = from; i < n; i += step) f(i, offset_of(v.reduced, v.reduced_strides, first + i));
    }
  }
};

template <class Op, class In, class Y>
__global__ void short_rows_kernel(RowView v, const In* x, Target<Op, Y> target) {
  for (int64_t row = first_index(); row < v.rows; row += index_step()) {
    const In* at = x + offset_of(v.kept, v.kept_strides, row);
    auto a = Op::init();
    for (int64_t i = 0; i < v.length; ++i)
      a = Op::combine(a, lift<Op>(at[offset_of(v.reduced, v.reduced_strides, i)], i));
    target.store(row, a);
  }
}

/// One warp per block of a row.
template <class Op, class In, class Y>
__global__ void row_blocks_kernel(RowView v, int64_t blocks, const In* x, Target<Op, Y> target) {
  const int lane = threadIdx.x % lanes;
  for (int64_t task = first_index() / lanes; task < v.rows * blocks; task += index_step() / lanes) {
    const Block b(v, task % blocks);
    const In* row = x + offset_of(v.kept, v.kept_strides, task / blocks);
    auto a = Op::init();
    b.for_each(v, lane, lanes,
               [&](int64_t i, int64_t offset) { a = Op::combine(a, lift<Op>(row[offset], b.first + i)); });
    for (int half = lanes / 2; half > 0; half /= 2) a = Op::combine(a, shuffle_down(a, half));
    if (lane == 0) target.store(task, a);
  }
}

/// A thread block of 32 x 8 per block of 32 neighbouring rows. Thread (c, l) has lanes l, l + 8, l + 16 and
/// l + 24 of row c.
template <class Op, class In, class Y>
__global__ void column_blocks_kernel(RowView v, int64_t blocks, const In* x, Target<Op, Y> target) {
  using Acc = typename Op::Acc;
  constexpr int groups = threads / lanes;
  __shared__ Acc lane[lanes][lanes];  // (lane, row)
  const int c = threadIdx.x % lanes, l = threadIdx.x / lanes;
  const int64_t side = v.kept.back(), tiles = (side + lanes - 1) / lanes;
  for (int64_t task = blockIdx.x; task < v.rows / side * tiles * blocks; task += gridDim.x) {
    const Block b(v, task % blocks);
    const int64_t column = task / blocks % tiles * lanes;  // within the side
    const int64_t row = task / blocks / tiles * side + column;
    const bool exists = column + c < side;
    const In* at = x + offset_of(v.kept, v.kept_strides, row) + c;

    for (int q = l; q < lanes; q += groups) {
      Acc a = Op::init();
      if (exists)
        b.for_each(v, q, lanes,
                   [&](int64_t i, int64_t offset) { a = Op::combine(a, lift<Op>(at[offset], b.first + i)); });
      lane[q][c] = a;
    }
    __syncthreads();
    for (int half = lanes / 2; half > 0; half /= 2) {
      for (int j = l; j < half; j += groups) lane[j][c] = Op::combine(lane[j][c], lane[j + half][c]);
      __syncthreads();
    }
    if (l == 0 && exists) target.store((row + c) * blocks + task % blocks, lane[0][c]);
    __syncthreads();  // before the next task writes
  }
}

template <class Op, class In, class Y>
void reduce_level(const Launch& launch, const RowView& v, int64_t blocks, const In* x, Target<Op, Y> target) {
  const int64_t side = v.kept.back();
  if (v.length <= short_length) {
    short_rows_kernel<Op><<<grid_for(v.rows, threads), threads, 0, launch.stream()>>>(v, x, target);
  } else if (v.kept_strides.back() == 1 && v.reduced_strides.back() != 1 && side >= 8) {
    const int64_t tasks = v.rows / side * ((side + lanes - 1) / lanes) * blocks;
    column_blocks_kernel<Op><<<grid_for(tasks, 1), threads, 0, launch.stream()>>>(v, blocks, x, target);
  } else {
    const int64_t warps_each = threads / lanes;
    row_blocks_kernel<Op>
        <<<grid_for(v.rows * blocks, warps_each), threads, 0, launch.stream()>>>(v, blocks, x, target);
  }
  launch.check();
}

/// Elements of type T; results that are elements are stored as such.
template <class Op, class T>
void reduce_with(const Tensor& x, int64_t reduced_dims, Tensor& y) {
  using Acc = typename Op::Acc;
  using Y = std::conditional_t<std::is_same_v<typename Op::Result, opmath_t<T>>, T, typename Op::Result>;
  RowView v = detail::rows_of(x, reduced_dims);
  if (v.rows == 0) return;
  const Launch launch("reduce", y, {&x});
  const Target<Op, Y> result{nullptr, detail::mutable_ptr<Y>(y), v.length};
  const auto blocks_of = [](int64_t length) { return length <= block ? 1 : (length + block - 1) / block; };
  int64_t blocks = blocks_of(v.length);
  if (blocks == 1) return reduce_level<Op>(launch, v, 1, detail::ptr<T>(x), result);

  const auto scratch = [&] {
    return empty({checked_mul("reduce", v.rows * blocks, sizeof(Acc))}, {u8, y.device()});
  };
  const auto partial_target = [](const Tensor& memory) {
    return Target<Op, Y>{static_cast<Acc*>(memory.impl()->data()), nullptr, 0};
  };
  Tensor partial = scratch();
  reduce_level<Op>(launch, v, blocks, detail::ptr<T>(x), partial_target(partial));
  for (;;) {
    const Tensor from = partial;
    v = {{v.rows}, {blocks}, {blocks}, {1}, v.rows, blocks};
    blocks = blocks_of(v.length);
    const Acc* results = static_cast<const Acc*>(from.impl()->data());
    if (blocks == 1) return reduce_level<Op>(launch, v, 1, results, result);
    partial = scratch();
    reduce_level<Op>(launch, v, blocks, results, partial_target(partial));
  }
}

}  // namespace

void reduce(ReduceKind kind, const Tensor& x, int64_t reduced_dims, Tensor& y) {
  detail::visit_reduction(kind, x.dtype(), [&]<class Op, class T>() {
    if constexpr (std::is_same_v<T, float>) {
      if (x.dtype() == bf16) return reduce_with<Op, bfloat16>(x, reduced_dims, y);
      if (x.dtype() == f16) return reduce_with<Op, float16>(x, reduced_dims, y);
    }
    reduce_with<Op, T>(x, reduced_dims, y);
  });
}

}  // namespace vox::cuda

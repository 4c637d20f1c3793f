#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/ops/reduce_ops.h>
#include <voxgrad/cuda/for_each_index.cuh>
#include <voxgrad/cuda/packet.cuh>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

// Reductions on CUDA.
//
// Order: a row of up to 32 elements is added from first to last. A longer one is cut into blocks of 1024. In
// a block, element i goes to lane i / V % 32, where V elements have 16 bytes; a lane adds its elements from
// first to last, and the 32 lanes are combined in a binary tree. The results of the blocks form a new row,
// which the next launch reduces in the same way. So the order depends only on the row's length and the dtype.
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

/// Elements of a block that the same lane adds: as many as a 16-byte load brings.
template <class In>
constexpr int lane_run = sizeof(In) <= 8 ? 16 / sizeof(In) : 1;

/// The result of row i, as an element of y.
template <class Op, class Y>
struct StoreResult {
  Y* y;
  int64_t length;  // of the rows of x

  __device__ void operator()(int64_t i, typename Op::Acc a) const {
    y[i] = static_cast<Y>(Op::finish(a, length));
  }
};
template <class T>
struct StoreVarMean {
  T *variance, *mean;
  double divisor;

  __device__ void operator()(int64_t i, detail::VarMeanOp<double>::Acc a) const {
    using A = opmath_t<T>;
    variance[i] = static_cast<T>(static_cast<A>(a.m2 / divisor));
    mean[i] =
        static_cast<T>(static_cast<A>(a.count == 0 ? std::numeric_limits<double>::quiet_NaN() : a.mean));
  }
};

/// Where results go: to `result` if a row was one block, else to the row of block results.
template <class Op, class Store>
struct Target {
  typename Op::Acc* partial;
  Store result;

  __device__ void store(int64_t i, typename Op::Acc a) const {
    if (partial)
      partial[i] = a;
    else
      result(i, a);
  }
};

/// What one lane adds up.
template <class Op, class In>
struct Lane {
  typename Op::Acc a = Op::init();
  __device__ void add(In x, int64_t i) { a = Op::combine(a, lift<Op>(x, i)); }
  __device__ typename Op::Acc result() const { return a; }
};
/// Sums of the differences from the first element: Chan's formula for each element would be a division each.
template <class T, class In>
requires(!std::is_same_v<In, typename detail::VarMeanOp<T>::Acc>) struct Lane<detail::VarMeanOp<T>, In> {
  T shift = 0, sum = 0, squares = 0;
  int n = 0;
  __device__ void add(In in, int64_t) {
    const T x = in;
    if (n++ == 0) shift = x;
    sum += x - shift;
    squares += (x - shift) * (x - shift);
  }
  __device__ typename detail::VarMeanOp<T>::Acc result() const {
    return detail::VarMeanOp<T>::of_shifted(static_cast<T>(n), shift, sum, squares);
  }
};

template <class A>
__device__ A shuffle_down(A a, int distance) {
  if constexpr (sizeof(A) < 4) {
    return static_cast<A>(__shfl_down_sync(all_lanes, static_cast<unsigned>(a), distance));
  } else {
    unsigned words[sizeof(A) / 4];
    std::memcpy(words, &a, sizeof(A));
#pragma unroll
    for (unsigned& word : words) word = __shfl_down_sync(all_lanes, word, distance);
    std::memcpy(&a, words, sizeof(A));
    return a;
  }
}

/// a / b. Dividing 32-bit numbers is several times cheaper.
__device__ inline int64_t quotient(int64_t a, int64_t b) {
  return (a | b) >> 32 == 0 ? static_cast<uint32_t>(a) / static_cast<uint32_t>(b) : a / b;
}

/// Block number b of the rows of `v`.
struct Block {
  int64_t first, n;

  __device__ Block(const RowView& v, int64_t b)
      : first(b * block), n(v.length - first < block ? v.length - first : block) {}

  /// Calls f(i, element i) for the elements of a lane, i counted within the block. `by_row` says that they
  /// may be contiguous.
  template <bool by_row, class In, class F>
  __device__ void for_each(const RowView& v, const In* row, int lane, F f) const {
    constexpr int size = lane_run<In>, step = size * lanes, at_once = size < 8 ? size : 8;
    const int64_t stride = v.reduced_strides.back();
    const bool one_piece =  // one stride reaches all of it
        v.reduced.rank() == 1 || first % v.reduced.back() + n <= v.reduced.back();
    if (!one_piece) {
#pragma unroll 1
      for (int64_t k = 0; k / size * step < n; ++k) {
        const int64_t i = k / size * step + lane * size + k % size;
        if (i < n) f(i, row[offset_of(v.reduced, v.reduced_strides, first + i)]);
      }
      return;
    }
    const In* const start = row + offset_of(v.reduced, v.reduced_strides, first);
    if constexpr (by_row && size > 1) {
      if (stride == 1 && n == block && reinterpret_cast<uintptr_t>(start) % 16 == 0) {
        Packet<In> packets[block / step];  // all loads before the first use
#pragma unroll
        for (int k = 0; k < block / step; ++k)
          packets[k] = reinterpret_cast<const Packet<In>*>(start)[k * lanes + lane];
#pragma unroll
        for (int k = 0; k < block / step; ++k) {
#pragma unroll
          for (int j = 0; j < size; ++j) f(k * step + lane * size + j, packets[k].lane[j]);
        }
        return;
      }
    }
#pragma unroll(8 / at_once)
    for (int64_t i = lane * size; i < n; i += step) {
#pragma unroll(at_once)
      for (int j = 0; j < size; ++j) {
        if (i + j < n) f(i + j, start[(i + j) * stride]);
      }
    }
  }
};

template <class Op, class In, class Store>
__global__ void short_rows_kernel(RowView v, const In* x, Target<Op, Store> target) {
  for (int64_t row = first_index(); row < v.rows; row += index_step()) {
    const In* at = x + offset_of(v.kept, v.kept_strides, row);
    Lane<Op, In> lane;
    for (int64_t i = 0; i < v.length; ++i) lane.add(at[offset_of(v.reduced, v.reduced_strides, i)], i);
    target.store(row, lane.result());
  }
}

/// One warp per block of a row.
template <class Op, class In, class Store>
__global__ void row_blocks_kernel(RowView v, int64_t blocks, const In* x, Target<Op, Store> target) {
  const int lane = threadIdx.x % lanes;
  for (int64_t task = first_index() / lanes; task < v.rows * blocks; task += index_step() / lanes) {
    const int64_t row = quotient(task, blocks);
    const Block b(v, task - row * blocks);
    Lane<Op, In> own;
    b.for_each<true>(v, x + offset_of(v.kept, v.kept_strides, row), lane,
                     [&](int64_t i, In element) { own.add(element, b.first + i); });
    auto a = own.result();
    for (int half = lanes / 2; half > 0; half /= 2) a = Op::combine(a, shuffle_down(a, half));
    if (lane == 0) target.store(task, a);
  }
}

/// A thread block of 32 x 8 per block of 32 neighbouring rows. Thread (c, l) has lanes l, l + 8, l + 16 and
/// l + 24 of row c.
template <class Op, class In, class Store>
__global__ void column_blocks_kernel(RowView v, int64_t blocks, const In* x, Target<Op, Store> target) {
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
      Lane<Op, In> own;
      if (exists) b.for_each<false>(v, at, q, [&](int64_t i, In element) { own.add(element, b.first + i); });
      lane[q][c] = own.result();
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

template <class Op, class In, class Store>
void reduce_level(const Launch& launch, const RowView& v, int64_t blocks, const In* x,
                  Target<Op, Store> target) {
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

/// Reduces the rows of x, elements of type T, level by level.
template <class Op, class T, class Store>
void reduce_rows(const Launch& launch, const Tensor& x, RowView v, const Store& store) {
  using Acc = typename Op::Acc;
  const Target<Op, Store> result{nullptr, store};
  const auto blocks_of = [](int64_t length) { return length <= block ? 1 : (length + block - 1) / block; };
  int64_t blocks = blocks_of(v.length);
  if (blocks == 1) return reduce_level<Op>(launch, v, 1, detail::ptr<T>(x), result);

  const auto scratch = [&] {
    return empty({checked_mul("reduce", v.rows * blocks, sizeof(Acc))}, {u8, x.device()});
  };
  const auto partial_target = [&](const Tensor& memory) {
    return Target<Op, Store>{static_cast<Acc*>(memory.impl()->data()), store};
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

/// Results that are elements are stored as such.
template <class Op, class T>
void reduce_with(const Tensor& x, int64_t reduced_dims, Tensor& y) {
  using Y = std::conditional_t<std::is_same_v<typename Op::Result, opmath_t<T>>, T, typename Op::Result>;
  const RowView v = detail::rows_of(x, reduced_dims);
  if (v.rows == 0) return;
  const Launch launch("reduce", y, {&x});
  reduce_rows<Op, T>(launch, x, v, StoreResult<Op, Y>{detail::mutable_ptr<Y>(y), v.length});
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

void var_mean(const Tensor& x, int64_t reduced_dims, double correction, Tensor& variance, Tensor& mean) {
  const RowView v = detail::rows_of(x, reduced_dims);
  if (v.rows == 0) return;
  const Launch launch("var_mean", variance, {&x, &mean});
  // In f64, so that a mean that is large beside the deviation costs no accuracy.
  visit_floating_storage("var_mean", x.dtype(), [&]<class T>(T) {
    const double divisor = std::max(0.0, static_cast<double>(v.length) - correction);
    const StoreVarMean<T> store{detail::mutable_ptr<T>(variance), detail::mutable_ptr<T>(mean), divisor};
    reduce_rows<detail::VarMeanOp<double>, T>(launch, x, v, store);
  });
}

}  // namespace vox::cuda

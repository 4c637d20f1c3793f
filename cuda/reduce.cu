#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/ops/reduce_ops.h>
#include <voxgrad/cuda/exponential.cuh>
#include <voxgrad/cuda/for_each_index.cuh>
#include <voxgrad/cuda/packet.cuh>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

// Reductions on CUDA.
//
// Order: a row of up to 32 elements is one lane. A longer one is cut into blocks of 1024, which have 32
// lanes. A packet is V elements that follow each other, where V elements have 16 bytes (at most 8). In a
// block, packet p goes to lane p % 32. A lane adds its packets from first to last. What is left of the block,
// less than a packet, follows as single elements. The lanes are combined in a binary tree. The results of the
// blocks form a new row, which the next launch reduces in the same way. So the order depends only on the
// row's length and the dtype.
//
// Who computes what: if the elements of a row are contiguous, a thread owns a short row, and a warp owns a
// block of a long one, one lane per thread. If instead neighbouring rows are contiguous, a thread owns the
// same lane of V rows, and a thread block has 8 such threads for each lane. So a warp reads memory in pieces
// of 16 bytes per thread either way. Every result has one owner, so there are no atomics.
//
// Bytes: each element is read once; block results add 1/1024 of that. Block results of bf16 and f16 are f32.

namespace vox::cuda {
namespace {

using detail::beats;
using detail::is_nan;
using detail::lift;
using detail::offset_of;
using detail::RowView;

constexpr int block = reduce_block_size;
constexpr int short_length = 32;
constexpr int lanes = 32;
constexpr int threads = 256;  // 8 warps: enough to hide the latency of memory

/// Elements of a packet.
template <class In>
constexpr int packet_size = sizeof(In) <= 8 ? std::min<int>(8, 16 / sizeof(In)) : 1;

// ---- What the rows' results are ---------------------------------------------------------------------------

/// A minimum is the maximum of numbers in reversed order. So both have one kernel, which loads what it reads
/// into that order, and back what it stores. `order` is 1 or -1. It is a number of the launch, because with a
/// condition instead the compiler makes two loops, which need too many registers.
template <class T>
__device__ T ordered(T x, int order) {
  if constexpr (std::is_floating_point_v<T>)
    return x * static_cast<T>(order);
  else
    return static_cast<T>(x ^ static_cast<T>(order >> 1));  // ~x for -1
}

/// The larger one, NaN if one is NaN.
template <class T>
__device__ T larger(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {  // one instruction
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  } else {
    return beats<T, true>(b, a) ? b : a;
  }
}

template <class T>
struct Extremum : detail::ExtremumOp<T, true> {
  using Ordered = T;
  static __device__ T combine(T a, T b) { return larger(a, b); }
};

template <class T>
struct ArgExtremum : detail::ArgExtremumOp<T, true> {
  using Ordered = T;
};

/// The extremum, and how many elements equal it.
template <class T>
struct Ties {
  using Ordered = T;
  struct Acc {
    T value, count;
  };
  static __device__ Acc init() { return {detail::weakest<T, true>(), 0}; }
  static __device__ Acc combine(Acc a, Acc b) {
    if (beats<T, true>(b.value, a.value)) return b;
    return {a.value, beats<T, true>(a.value, b.value) ? a.count : a.count + b.count};
  }
};

/// The sum of magnitudes, or of squares. The results of blocks are only added.
template <class T>
struct SumOfMagnitudes : detail::SumOp<T, false> {
  using OfBlocks = detail::SumOp<T, false>;
  static __device__ T add(T a, T x) { return a + ::fabs(x); }
};
template <class T>
struct SumOfSquares : detail::SumOp<T, false> {
  using OfBlocks = detail::SumOp<T, false>;
  static __device__ T add(T a, T x) { return ::fma(x, x, a); }
};

/// The maximum, but no less than the lowest and no more than the largest finite number; and the sum of
/// exp(x - max).
template <class In>
struct LogSumExp {
  using T = opmath_t<In>;
  struct Acc {
    T max, sum;
  };
  static __device__ Acc init() { return {std::numeric_limits<T>::lowest(), 0}; }
  static __device__ Acc combine(Acc a, Acc b) {
    const T max = a.max > b.max ? a.max : b.max;
    return {max,
            ::fma(a.sum, flushed_exponential<In>(a.max - max), b.sum * flushed_exponential<In>(b.max - max))};
  }
};

/// The result of row i, as an element of y, and what ReduceKernel calls `extra`. Each may be null.
template <class Acc, class A, class Y>
struct StoreResult {
  Y* y;
  A* extra;
  ReduceKind kind;
  int64_t length;  // of the rows of x

  __device__ void operator()(int64_t i, const Acc& a) const {
    if constexpr (std::is_same_v<Acc, A>) {  // sums, extrema
      A result = in_order(a);
      if constexpr (std::is_floating_point_v<A>) {
        if (kind == ReduceKind::mean || kind == ReduceKind::mean_magnitude || kind == ReduceKind::mean_square)
          result = a / static_cast<A>(length);
        if (kind == ReduceKind::norm) result = ::sqrt(a);
      }
      store(i, result, result);
    } else if constexpr (requires { a.index; }) {
      store(i, a.index, A(0));
    } else if constexpr (requires { a.count; }) {
      store(i, in_order(a.value), a.count);
    } else if constexpr (requires { a.max; }) {
      const A result = a.max + ::log(a.sum);
      store(i, result, result);
    } else {
      store(i, a, A(0));
    }
  }

 private:
  /// max.NaN gives a NaN without a sign.
  __device__ A in_order(A x) const { return kind == ReduceKind::min && !is_nan(x) ? ordered(x, -1) : x; }
  template <class R>
  __device__ void store(int64_t i, R result, A more) const {
    if (y) y[i] = static_cast<Y>(result);
    if (extra) extra[i] = more;
  }
};

template <class T>
struct StoreVarMean {
  using A = opmath_t<T>;
  T *variance, *mean;
  A* exact_mean;  // or null
  double divisor;

  __device__ void operator()(int64_t i, const detail::VarMeanOp<double>::Acc& a) const {
    const A m = static_cast<A>(a.count == 0 ? std::numeric_limits<double>::quiet_NaN() : a.mean);
    variance[i] = static_cast<T>(static_cast<A>(a.m2 / divisor));
    mean[i] = static_cast<T>(m);
    if (exact_mean) exact_mean[i] = m;
  }
};

/// Where results go: to `result` if a row was one block, else to the row of block results.
template <class Acc, class Store>
struct Target {
  Acc* partial;
  Store result;

  __device__ void store(int64_t i, const Acc& a) const {
    if (partial)
      partial[i] = a;
    else
      result(i, a);
  }
};

// ---- What one lane adds up -------------------------------------------------------------------------------

/// add() takes n elements, of which the first has number i within the block. result() is that of a block, in
/// lane 0 after the lanes are combined: of n elements, of which the first has number `first` in its row.
template <class Op, class In>
struct Lane {
  using Acc = typename Op::Acc;
  Acc a = Op::init();

  template <class X, int n>
  __device__ void add(const X (&x)[n], int) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if constexpr (requires { typename Op::OfBlocks; })
        a = Op::add(a, x[j]);
      else
        a = Op::combine(a, lift<Op>(x[j], 0));
    }
  }
  __device__ void combine(const Lane& other) { a = Op::combine(a, other.a); }
  __device__ Acc result(int64_t, int) const { return a; }
};

/// The sums of x - shift and of its square, where the shift, the same for all lanes of a block, is the mean
/// of a few elements: so nothing cancels if the mean is large.
template <class In>
requires(!std::is_same_v<In, detail::VarMeanOp<double>::Acc>) struct Lane<detail::VarMeanOp<double>, In> {
  using T = opmath_t<In>;
  T shift, sum = 0, squares = 0;

  static constexpr int samples = 4;
  /// Takes the samples. Each is divided before they are added, which cannot overflow.
  __device__ void begin(const T (&sample)[samples]) {
    constexpr T part = T(1) / samples;
    const T mean = (sample[0] * part + sample[1] * part) + (sample[2] * part + sample[3] * part);
    shift = mean - mean == 0 ? mean : T(0);
  }
  template <int n>
  __device__ void add(const T (&x)[n], int) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const T apart = x[j] - shift;
      sum += apart;
      squares = ::fma(apart, apart, squares);
    }
  }
  __device__ void combine(const Lane& other) { sum += other.sum, squares += other.squares; }
  __device__ detail::VarMeanOp<double>::Acc result(int64_t, int n) const {
    if (n == 0) return {0, 0, 0};
    const T mean = sum / static_cast<T>(n), m2 = ::fma(-sum, mean, squares);
    return {static_cast<double>(n), static_cast<double>(shift) + mean, m2 < 0 ? 0.0 : m2};
  }
};

/// The index counts within the block.
template <class T, class In>
requires(!std::is_same_v<In, typename ArgExtremum<T>::Acc>) struct Lane<ArgExtremum<T>, In> {
  static constexpr int none = std::numeric_limits<int>::max();
  T value = detail::weakest<T, true>();
  int index = none;

  template <int n>
  __device__ void add(const T (&x)[n], int i) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const bool take = beats<T, true>(x[j], value) || (j == 0 && index == none);
      value = take ? x[j] : value;
      index = take ? i + j : index;
    }
  }
  __device__ void combine(const Lane& other) {
    if (beats<T, true>(other.value, value) || (!beats<T, true>(value, other.value) && other.index < index))
      *this = other;
  }
  __device__ typename ArgExtremum<T>::Acc result(int64_t first, int) const { return {value, first + index}; }
};

template <class T, class In>
requires(!std::is_same_v<In, typename Ties<T>::Acc>) struct Lane<Ties<T>, In> {
  using Acc = typename Ties<T>::Acc;
  Acc a = Ties<T>::init();

  template <int n>
  __device__ void add(const T (&x)[n], int) {
    T value = x[0];
#pragma unroll
    for (int j = 1; j < n; ++j) value = larger(value, x[j]);
    if (beats<T, true>(value, a.value)) a = {value, 0};
#pragma unroll
    for (int j = 0; j < n; ++j) a.count += x[j] == a.value || is_nan(x[j]) ? T(1) : T(0);
  }
  __device__ void combine(const Lane& other) { a = Ties<T>::combine(a, other.a); }
  __device__ Acc result(int64_t, int) const { return a; }
};

/// Multiplies the sum once per packet, not once per element. fmax() ignores a NaN, which reaches the sum.
template <class In>
requires(!std::is_same_v<In, typename LogSumExp<In>::Acc>) struct Lane<LogSumExp<In>, In> {
  using Op = LogSumExp<In>;
  using T = typename Op::T;
  typename Op::Acc a = Op::init();

  template <int n>
  __device__ void add(const T (&x)[n], int) {
    T max = a.max;
#pragma unroll
    for (int j = 0; j < n; ++j) max = ::fmax(max, x[j]);
    max = ::fmin(max, std::numeric_limits<T>::max());
    a.sum *= flushed_exponential<In>(a.max - max);
    a.max = max;
#pragma unroll
    for (int j = 0; j < n; ++j) a.sum += flushed_exponential<In>(x[j] - max);
  }
  __device__ void combine(const Lane& other) { a = Op::combine(a, other.a); }
  __device__ typename Op::Acc result(int64_t, int) const { return a; }
};

// ---- Reading ---------------------------------------------------------------------------------------------

/// The memory of x, or of x and the target, whose difference is reduced.
template <class In, int operands>
struct Operands {
  const In* at[operands];
  int order = 1;  // -1 for a minimum of elements; block results are in that order already
};

/// How the elements of a block lie in memory: in packets of 16 bytes, in one stride, or in several pieces.
/// `either` is one of the last two, known at run time.
enum class Walk { packets, stride, pieces, either };

/// A function in its own right, because inlined divisions would be most of the code of many kernels.
__device__ __noinline__ int64_t offset_in_row(const RowView& v, int64_t i) {
  return offset_of(v.reduced, v.reduced_strides, i);
}

/// n elements of a row, from element number `first` on; of V rows, if V neighbouring rows are contiguous.
template <class In, int operands, int V>
struct Elements {
  const RowView& v;
  int64_t first;
  int n;
  bool one_piece;
  Operands<In, operands> x;  // where the row begins, or where element `first` lies if one stride reaches all

  __device__ Elements(const RowView& view, Operands<In, operands> memory, int64_t begin, int64_t offset,
                      bool whole)
      : v(view),
        first(begin),
        n(static_cast<int>(view.length - begin < block ? view.length - begin : block)),
        one_piece(whole),
        x(memory) {
#pragma unroll
    for (int k = 0; k < operands; ++k) x.at[k] += offset;
  }
  __device__ static Elements of_row(const RowView& v, Operands<In, operands> x, int64_t offset,
                                    int64_t first) {
    const int64_t last = v.reduced.back(), n = v.length - first < block ? v.length - first : block;
    const bool one_piece = v.reduced.rank() == 1 || first % last + n <= last;
    if (one_piece) offset += offset_of(v.reduced, v.reduced_strides, first);
    return {v, x, first, offset, one_piece};
  }

  /// Elements i, i + 1, ..., counted from the first.
  template <Walk walk, int count>
  __device__ void read(int i, In (&to)[operands][count][V]) const {
#pragma unroll
    for (int k = 0; k < operands; ++k) {
      if constexpr (walk == Walk::packets && count > 1) {
        const auto packet = *reinterpret_cast<const Packet<In, count>*>(x.at[k] + i);
#pragma unroll
        for (int j = 0; j < count; ++j) to[k][j][0] = packet.lane[j];
      } else {
#pragma unroll
        for (int j = 0; j < count; ++j) {
          const In* const at = x.at[k] + (walk == Walk::packets  ? i + j
                                          : walk == Walk::stride ? (i + j) * v.reduced_strides.back()
                                                                 : offset_in_row(v, first + i + j));
          if constexpr (V == 1) {
            to[k][j][0] = *at;
          } else {
            const auto packet = *reinterpret_cast<const Packet<In, V>*>(at);
#pragma unroll
            for (int c = 0; c < V; ++c) to[k][j][c] = packet.lane[c];
          }
        }
      }
    }
  }
};

/// Rows whose blocks are whole packets in one piece: element i of row r lies at r * row + i / inner * outer +
/// i % inner.
struct PacketRows {
  int64_t row, inner, outer;

  /// For block b of row r.
  template <class In, int operands>
  __device__ Elements<In, operands, 1> block_of(const RowView& v, const Operands<In, operands>& x, int64_t r,
                                                int64_t b) const {
    int64_t first = b * block, offset = r * row + first;
    if (inner < v.length) offset += first / inner * (outer - inner);
    return {v, x, first, offset, true};
  }
  template <class In, int operands>
  static std::optional<PacketRows> of(const RowView& v, const Operands<In, operands>& x) {
    constexpr int64_t size = packet_size<In>;
    const int64_t dims = v.reduced.rank(), inner = v.reduced.back(), row = v.kept_strides[0],
                  outer = dims == 2 ? v.reduced_strides[0] : 0;
    bool packets = v.kept.rank() == 1 && v.reduced_strides.back() == 1 && (v.rows == 1 || row % size == 0) &&
                   (dims == 1 || (dims == 2 && inner % block == 0 && outer % size == 0));
    for (const In* at : x.at) packets = packets && is_packet_aligned<In, size>(at);
    if (!packets) return std::nullopt;
    return PacketRows{row, inner, outer};
  }
};

/// Whether `order` matters to values of type V.
template <class Op, class V>
constexpr bool is_ordered = requires {
  typename Op::Ordered;
  requires std::is_arithmetic_v<V>;
};

/// Calls f(row, values) with what a lane adds of each of the V rows.
template <class Op, class In, int operands, int count, int V, class F>
__device__ void for_rows(const In (&x)[operands][count][V], [[maybe_unused]] int order, F f) {
  using Value = std::conditional_t<std::is_same_v<In, typename Op::Acc>, In, opmath_t<In>>;
#pragma unroll
  for (int c = 0; c < V; ++c) {
    Value values[count];
#pragma unroll
    for (int j = 0; j < count; ++j) {
      values[j] = static_cast<Value>(x[0][j][c]);
      if constexpr (operands == 2) values[j] -= static_cast<Value>(x[1][j][c]);
      if constexpr (is_ordered<Op, Value>) values[j] = ordered(values[j], order);
    }
    f(c, values);
  }
}

/// Adds what belongs to one of `step` lanes.
template <Walk walk, class Op, class In, int operands, int V>
__device__ void add_lane(const Elements<In, operands, V>& e, int lane, int step, Lane<Op, In> (&own)[V]) {
  constexpr int size = packet_size<In>;
  constexpr int most = walk == Walk::packets  ? std::min(8, block / (lanes * size))
                       : walk == Walk::pieces ? 1
                                              : 8 / size;
  constexpr int at_once = std::max(1, most / operands);  // packets that are loaded before the first is added
  const int whole = e.n / size;
  const bool owns_rest = whole % step == lane;
  const int order = e.x.order;

  const auto read = [&]<int count>(int i, In(&to)[operands][count][V]) {
    if constexpr (walk != Walk::either)
      e.template read<walk>(i, to);
    else if (e.one_piece)
      e.template read<Walk::stride>(i, to);
    else
      e.template read<Walk::pieces>(i, to);
  };
  const auto begin = [&] {
    if constexpr (requires { Lane<Op, In>::samples; }) {
      constexpr int samples = Lane<Op, In>::samples;
      In x[operands][samples][V];
#pragma unroll
      for (int s = 0; s < samples; ++s) {
        In sample[operands][1][V];
        read(e.n * s / samples, sample);
#pragma unroll
        for (int c = 0; c < V; ++c) x[0][s][c] = sample[0][0][c];
      }
      for_rows<Op>(x, order, [&](int c, const auto& values) { own[c].begin(values); });
    }
  };
  for (int p = lane; p < whole; p += step * at_once) {
    In x[at_once][operands][size][V];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (p + k * step < whole) read((p + k * step) * size, x[k]);
    }
    if (p == lane) begin();
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (p + k * step >= whole) break;
      for_rows<Op>(x[k], order,
                   [&](int c, const auto& values) { own[c].add(values, (p + k * step) * size); });
    }
  }
  if (!owns_rest) return;
  if (lane >= whole && e.n > 0) begin();
  for (int i = whole * size; i < e.n; ++i) {
    In x[operands][1][V];
    read(i, x);
    for_rows<Op>(x, order, [&](int c, const auto& values) { own[c].add(values, i); });
  }
}

/// With V rows, one loop for both would have too many registers.
template <class Op, class In, int operands, int V>
__device__ void add_lane(const Elements<In, operands, V>& e, int lane, int step, Lane<Op, In> (&own)[V]) {
  if constexpr (V == 1)
    add_lane<Walk::either, Op>(e, lane, step, own);
  else if (e.one_piece)
    add_lane<Walk::stride, Op>(e, lane, step, own);
  else
    add_lane<Walk::pieces, Op>(e, lane, step, own);
}

// ---- Kernels ---------------------------------------------------------------------------------------------

/// A thread per short row, or per V of them that are neighbours in memory.
template <class Op, int V, class In, int operands, class Target>
__global__ void __launch_bounds__(threads, 3)
    short_rows_kernel(const __grid_constant__ RowView v, Operands<In, operands> x, Target target) {
  for (int64_t row = first_index() * V; row < v.rows; row += index_step() * V) {
    const auto e = Elements<In, operands, V>::of_row(v, x, offset_of(v.kept, v.kept_strides, row), 0);
    Lane<Op, In> own[V];
    add_lane<Op>(e, 0, 1, own);
#pragma unroll
    for (int c = 0; c < V; ++c) target.store(row + c, own[c].result(0, e.n));
  }
}

/// One warp per block of a row. `Rows` is PacketRows, or AnyRows.
struct AnyRows {
  template <class In, int operands>
  __device__ Elements<In, operands, 1> block_of(const RowView& v, const Operands<In, operands>& x, int64_t r,
                                                int64_t b) const {
    return Elements<In, operands, 1>::of_row(v, x, offset_of(v.kept, v.kept_strides, r), b * block);
  }
};
template <class Op, class Rows, class In, int operands, class Target>
__global__ void __launch_bounds__(threads, 4)  // a few blocks per multiprocessor load at the same time
    row_blocks_kernel(const __grid_constant__ RowView v, Rows rows, int64_t blocks, Operands<In, operands> x,
                      Target target) {
  const int lane = threadIdx.x % lanes;
  for (int64_t task = first_index() / lanes; task < v.rows * blocks; task += index_step() / lanes) {
    const int64_t row = blocks == 1 ? task : task / blocks;
    const Elements<In, operands, 1> e = rows.block_of(v, x, row, task - row * blocks);
    Lane<Op, In> own[1];
    constexpr bool packets = std::is_same_v<Rows, PacketRows>;
    add_lane<packets ? Walk::packets : Walk::either, Op>(e, lane, lanes, own);
#pragma unroll
    for (int half = lanes / 2; half > 0; half /= 2) own[0].combine(shuffle_xor(own[0], half));
    if (lane == 0) target.store(task, own[0].result(e.first, e.n));
  }
}

/// Threads side by side in a thread block of columns. V = 1 is for memory that allows no packets.
template <int V>
constexpr int across = V == 1 ? 32 : 8;

/// A thread block per block of across * V neighbouring rows. Thread (l, c) has lane l of rows c * V to
/// c * V + V - 1.
template <class Op, int V, class In, int operands, class Target>
__global__ void __launch_bounds__(across<V>* lanes, V == 1 ? 1 : 3)
    column_blocks_kernel(const __grid_constant__ RowView v, int64_t blocks, Operands<In, operands> x,
                         Target target) {
  constexpr int tile = across<V> * V;
  __shared__ alignas(16) unsigned char memory[lanes * tile * sizeof(Lane<Op, In>)];
  auto* const all = reinterpret_cast<Lane<Op, In>(*)[tile]>(memory);  // (lane, row)
  const int l = threadIdx.x / across<V>, c = threadIdx.x % across<V> * V;
  const int64_t side = v.kept.back(), tiles = (side + tile - 1) / tile;
  for (int64_t task = blockIdx.x; task < v.rows / side * tiles * blocks; task += gridDim.x) {
    const int64_t t = task / blocks, b = task - t * blocks, outer = t / tiles;
    const int64_t column = (t - outer * tiles) * tile;  // within the side
    const int64_t row = outer * side + column;
    const int64_t offset = offset_of(v.kept, v.kept_strides, row) + c;
    const auto e = Elements<In, operands, V>::of_row(v, x, offset, b * block);
    if (column + c < side) {
      Lane<Op, In> own[V];
      add_lane<Op>(e, l, lanes, own);
#pragma unroll
      for (int j = 0; j < V; ++j) all[l][c + j] = own[j];
    }
    __syncthreads();
    if (threadIdx.x < tile && column + threadIdx.x < side) {
      Lane<Op, In> half[lanes / 2];
#pragma unroll
      for (int j = 0; j < lanes / 2; ++j) {
        half[j] = all[j][threadIdx.x];
        half[j].combine(all[j + lanes / 2][threadIdx.x]);
      }
#pragma unroll
      for (int level = 3; level >= 0; --level) {
#pragma unroll
        for (int j = 0; j < 1 << level; ++j) half[j].combine(half[j + (1 << level)]);
      }
      target.store((row + threadIdx.x) * blocks + b, half[0].result(e.first, e.n));
    }
    __syncthreads();  // before the next task writes
  }
}

/// Whether V neighbouring rows can be read as packets.
template <int V, class In, int operands>
bool moves_in_packets(const RowView& v, const Operands<In, operands>& x) {
  bool moves = V > 1 && v.kept.back() % V == 0;
  for (const In* at : x.at) moves = moves && is_packet_aligned<In, V>(at);
  for (int64_t i = 0; i + 1 < v.kept.rank(); ++i) moves = moves && v.kept_strides[i] % V == 0;
  for (const int64_t stride : v.reduced_strides) moves = moves && stride % V == 0;
  return moves;
}

/// `elements` says that In is not a block result: those are few, and their rows are contiguous.
template <class Op, bool elements, class In, int operands, class Target>
void reduce_level(const Launch& launch, const RowView& v, int64_t blocks, const Operands<In, operands>& x,
                  const Target& target) {
  const auto in_columns = [&]<int V>() {
    const int64_t side = v.kept.back(), tile = across<V> * V;
    if (v.length <= short_length)
      short_rows_kernel<Op, V><<<grid_for(v.rows / V, threads), threads, 0, launch.stream()>>>(v, x, target);
    else
      column_blocks_kernel<Op, V><<<grid_for(v.rows / side * ((side + tile - 1) / tile) * blocks, 1),
                                    across<V> * lanes, 0, launch.stream()>>>(v, blocks, x, target);
    launch.check();
  };
  if constexpr (elements) {
    constexpr int V = packet_size<In>;
    if (v.kept_strides.back() == 1 && v.reduced_strides.back() != 1 && v.kept.back() >= 8)
      return moves_in_packets<V>(v, x) ? in_columns.template operator()<V>()
                                       : in_columns.template operator()<1>();
  }
  const auto in_rows = [&](const auto& rows) {
    row_blocks_kernel<Op><<<grid_for(v.rows * blocks, threads / lanes), threads, 0, launch.stream()>>>(
        v, rows, blocks, x, target);
    launch.check();
  };
  if (v.length <= short_length) {
    short_rows_kernel<Op, 1><<<grid_for(v.rows, threads), threads, 0, launch.stream()>>>(v, x, target);
    return launch.check();
  }
  if constexpr (elements && (1 < packet_size<In>)) {
    if (const auto packets = PacketRows::of(v, x)) return in_rows(*packets);
  }
  in_rows(AnyRows());
}

/// Reduces the rows of x level by level.
template <class Op, bool elements = true, class T, int operands, class Store>
void reduce_rows(const Launch& launch, Device device, Operands<T, operands> x, RowView v,
                 const Store& store) {
  using Acc = typename Op::Acc;
  const int64_t blocks = v.length <= block ? 1 : (v.length + block - 1) / block;
  if (blocks == 1) return reduce_level<Op, elements>(launch, v, 1, x, Target<Acc, Store>{nullptr, store});

  const Tensor memory = empty({checked_mul("reduce", v.rows * blocks, sizeof(Acc))}, {u8, device});
  auto* const partial = static_cast<Acc*>(memory.impl()->data());
  reduce_level<Op, elements>(launch, v, blocks, x, Target<Acc, Store>{partial, store});
  const auto next = [&]<class OfBlocks>() {
    reduce_rows<OfBlocks, false>(launch, device, Operands<Acc, 1>{{partial}},
                                 {{v.rows}, {blocks}, {blocks}, {1}, v.rows, blocks}, store);
  };
  if constexpr (requires { typename Op::OfBlocks; })
    next.template operator()<typename Op::OfBlocks>();
  else
    next.template operator()<Op>();
}

}  // namespace

void reduce(ReduceKind kind, const Tensor& x, const Tensor& target, int64_t reduced_dims, Tensor& y,
            Tensor& extra) {
  const RowView v = detail::rows_of(x, reduced_dims);
  if (v.rows == 0) return;
  const Launch launch("reduce", x, {&target, &y, &extra});
  visit_dtype(x.dtype(), [&]<class E>(E) {
    using T = std::conditional_t<std::is_same_v<E, bool>, uint8_t, E>;
    using A = opmath_t<T>;
    const auto run = [&]<class Op, class Y, int operands = 1>(Operands<T, operands> memory) {
      const StoreResult<typename Op::Acc, A, Y> store{
          y.defined() ? static_cast<Y*>(y.impl()->data()) : nullptr,
          extra.defined() ? detail::mutable_ptr<A>(extra) : nullptr, kind, v.length};
      reduce_rows<Op>(launch, x.device(), memory, v, store);
    };
    const int order = kind == ReduceKind::min || kind == ReduceKind::argmin ? -1 : 1;
    const Operands<T, 1> alone{{static_cast<const T*>(x.impl()->data())}, order};
    const auto difference_of = [&]<class Op>() {
      if (!target.defined()) return run.template operator()<Op, T>(alone);
      run.template operator()<Op, T, 2>(Operands<T, 2>{{alone.at[0], detail::ptr<T>(target)}});
    };
    switch (kind) {
      case ReduceKind::sum:
        return run.template
        operator()<detail::SumOp<A, false>, std::conditional_t<is_floating_v<T>, T, int64_t>>(alone);
      case ReduceKind::max:
      case ReduceKind::min:
        if constexpr (is_floating_v<T>) {
          if (extra.defined()) return run.template operator()<Ties<A>, T>(alone);
        }
        return run.template operator()<Extremum<A>, T>(alone);
      case ReduceKind::argmax:
      case ReduceKind::argmin:
        return run.template operator()<ArgExtremum<A>, int64_t>(alone);
      default:
        break;
    }
    if constexpr (is_floating_v<T>) {
      switch (kind) {
        case ReduceKind::mean:
          return run.template operator()<detail::SumOp<A, false>, T>(alone);
        case ReduceKind::sum_of_magnitudes:
        case ReduceKind::mean_magnitude:
          return difference_of.template operator()<SumOfMagnitudes<A>>();
        case ReduceKind::sum_of_squares:
        case ReduceKind::mean_square:
        case ReduceKind::norm:
          return difference_of.template operator()<SumOfSquares<A>>();
        case ReduceKind::logsumexp:
          return run.template operator()<LogSumExp<T>, T>(alone);
        default:
          break;
      }
    }
    throw DTypeError("reduce: this reduction has no kernel for integers");
  });
}

void var_mean(const Tensor& x, int64_t reduced_dims, double correction, Tensor& variance, Tensor& mean,
              Tensor& exact_mean) {
  const RowView v = detail::rows_of(x, reduced_dims);
  if (v.rows == 0) return;
  const Launch launch("var_mean", variance, {&x, &mean, &exact_mean});
  visit_floating_storage("var_mean", x.dtype(), [&]<class T>(T) {
    using A = opmath_t<T>;
    const double divisor = std::max(0.0, static_cast<double>(v.length) - correction);
    const StoreVarMean<T> store{detail::mutable_ptr<T>(variance), detail::mutable_ptr<T>(mean),
                                exact_mean.defined() ? detail::mutable_ptr<A>(exact_mean) : nullptr, divisor};
    reduce_rows<detail::VarMeanOp<double>>(launch, x.device(), Operands<T, 1>{{detail::ptr<T>(x)}}, v, store);
  });
}

}  // namespace vox::cuda

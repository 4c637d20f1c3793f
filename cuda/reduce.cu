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
// of 16 bytes per thread either way. Elements of 8 bytes, and memory that allows no packets, are read one by
// one, in the same order. Every result has one owner, so there are no atomics.
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

/// The sum of magnitudes (power 1) or of squares (2): the factor is 1 or the magnitude, and the sum is
/// rounded once. The power is a number of the launch, too. The results of blocks are only added.
template <class T>
struct SumOfPowers : detail::SumOp<T, false> {
  using OfBlocks = detail::SumOp<T, false>;
  static __device__ T add(T a, T x, int power) {
    const T magnitude = ::fabs(x), squares = static_cast<T>(power - 1);
    return ::fma(magnitude, ::fmax(magnitude * squares, T(1) - squares), a);
  }
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

/// The tensor that gets results, or none. Kernels that compute in float know at run time what it stores.
class Results {
 public:
  explicit Results(const Tensor& y)
      : data_(y.defined() ? y.impl()->data() : nullptr), dtype_(y.defined() ? y.dtype() : f32) {}

  template <class A>
  __device__ void store(int64_t i, A x) const {
    if (!data_) return;
    if (std::is_same_v<A, float> && dtype_ == bf16)
      static_cast<bfloat16*>(data_)[i] = bfloat16(static_cast<float>(x));
    else if (std::is_same_v<A, float> && dtype_ == f16)
      static_cast<float16*>(data_)[i] = float16(static_cast<float>(x));
    else
      static_cast<A*>(data_)[i] = x;
  }

 private:
  void* data_;
  DType dtype_;
};

/// The result of row i, as an element of y, and what ReduceKernel calls `extra`.
template <class Acc, class A>
struct StoreResult {
  Results y, extra;
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
    y.store(i, result);
    extra.store(i, more);
  }
};

template <class A>
struct StoreVarMean {
  Results variance, mean, exact_mean;
  double divisor;

  __device__ void operator()(int64_t i, const detail::VarMeanOp<double>::Acc& a) const {
    const A m = static_cast<A>(a.count == 0 ? std::numeric_limits<double>::quiet_NaN() : a.mean);
    variance.store(i, static_cast<A>(a.m2 / divisor));
    mean.store(i, m);
    exact_mean.store(i, m);
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

/// add() takes n elements, of which the first has number i within the block, and Operands::variant. result()
/// is that of a block, in lane 0 after the lanes are combined: of n elements, of which the first has number
/// `first` in its row.
template <class Op, class In>
struct Lane {
  using Acc = typename Op::Acc;
  Acc a = Op::init();

  template <class X, int n>
  __device__ void add(const X (&x)[n], int, int variant) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if constexpr (requires { typename Op::OfBlocks; })
        a = Op::add(a, x[j], variant);
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
  __device__ void add(const T (&x)[n], int, int) {
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
  __device__ void add(const T (&x)[n], int i, int) {
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
  __device__ void add(const T (&x)[n], int, int) {
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
  __device__ void add(const T (&x)[n], int, int) {
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
  // Of ops that share a kernel: -1 for a minimum of elements (block results are in that order already), 2 for
  // a sum of squares.
  int variant = 1;
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

/// Whether values of type V are brought into an order.
template <class Op, class V>
constexpr bool is_ordered = requires {
  typename Op::Ordered;
  requires std::is_arithmetic_v<V>;
};

/// Calls f(row, values) with what a lane adds of each of the V rows.
template <class Op, class In, int operands, int count, int V, class F>
__device__ void for_rows(const In (&x)[operands][count][V], [[maybe_unused]] int variant, F f) {
  using Value = std::conditional_t<std::is_same_v<In, typename Op::Acc>, In, opmath_t<In>>;
#pragma unroll
  for (int c = 0; c < V; ++c) {
    Value values[count];
#pragma unroll
    for (int j = 0; j < count; ++j) {
      values[j] = static_cast<Value>(x[0][j][c]);
      if constexpr (operands == 2) values[j] -= static_cast<Value>(x[1][j][c]);
      if constexpr (is_ordered<Op, Value>) values[j] = ordered(values[j], variant);
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
  const int variant = e.x.variant;

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
      for_rows<Op>(x, variant, [&](int c, const auto& values) { own[c].begin(values); });
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
      for_rows<Op>(x[k], variant,
                   [&](int c, const auto& values) { own[c].add(values, (p + k * step) * size, variant); });
    }
  }
  if (!owns_rest) return;
  if (lane >= whole && e.n > 0) begin();
  for (int i = whole * size; i < e.n; ++i) {
    In x[operands][1][V];
    read(i, x);
    for_rows<Op>(x, variant, [&](int c, const auto& values) { own[c].add(values, i, variant); });
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

/// One warp per block of PacketRows.
template <class Op, class In, int operands, class Target>
__global__ void __launch_bounds__(threads, 4)  // a few blocks per multiprocessor load at the same time
    packets_kernel(const __grid_constant__ RowView v, PacketRows rows, int64_t blocks,
                   Operands<In, operands> x, Target target) {
  const int lane = threadIdx.x % lanes;
  for (int64_t task = first_index() / lanes; task < v.rows * blocks; task += index_step() / lanes) {
    const int64_t row = blocks == 1 ? task : task / blocks;
    const Elements<In, operands, 1> e = rows.block_of(v, x, row, task - row * blocks);
    Lane<Op, In> own[1];
    add_lane<Walk::packets, Op>(e, lane, lanes, own);
#pragma unroll
    for (int half = lanes / 2; half > 0; half /= 2) own[0].combine(shuffle_xor(own[0], half));
    if (lane == 0) target.store(task, own[0].result(e.first, e.n));
  }
}

/// Which thread has which lane of which rows. Neighbouring threads have either the lanes of a row, or the
/// same lane of neighbouring rows; then a thread block has `across` of them, and its lanes meet in shared
/// memory.
struct Shares {
  int lanes;           // of a row; 1 if rows are short
  int across = 0;      // 0: the lanes of a row are neighbours
  int64_t side = 0;    // neighbouring rows; no tile crosses their end
  int64_t tiles = 0;   // of a side; a thread block has one at a time
  int64_t blocks = 1;  // of a row
  int64_t tasks = 0;   // likewise: a tile, or some rows, of one block
};

/// Any rows. V of them, which are neighbours in memory, belong to one thread.
template <class Op, int V, class In, int operands, class Target>
__global__ void __launch_bounds__(V == 1 ? 1024 : threads, V == 1 ? 1 : 3)
    rows_kernel(const __grid_constant__ RowView v, Shares s, Operands<In, operands> x, Target target) {
  extern __shared__ uint4 memory[];
  auto* const all = reinterpret_cast<Lane<Op, In>*>(memory);  // (lane, row of the tile)
  const bool apart = V > 1 || s.across > 0;                   // lanes of a row are in other warps
  const int thread = static_cast<int>(threadIdx.x), size = static_cast<int>(blockDim.x), tile = s.across * V;
  const int lane = apart ? thread / s.across : thread % s.lanes;
  const int own_row = apart ? thread % s.across * V : thread / s.lanes;
  for (int64_t task = blockIdx.x; task < s.tasks; task += gridDim.x) {
    int64_t row, b, end = v.rows;
    if (apart) {
      const int64_t t = task / s.blocks, outer = t / s.tiles;
      b = task - t * s.blocks, row = outer * s.side + (t - outer * s.tiles) * tile + own_row;
      end = (outer + 1) * s.side;
    } else {
      const int64_t first = task * (size / s.lanes) + own_row;
      row = s.blocks == 1 ? first : first / s.blocks, b = first - row * s.blocks;
    }
    Lane<Op, In> own[V];
    if (row < end) {
      const int64_t offset = offset_of(v.kept, v.kept_strides, row);
      add_lane<Op>(Elements<In, operands, V>::of_row(v, x, offset, b * block), lane, s.lanes, own);
    }
    const auto store = [&](int64_t to, const Lane<Op, In>& result) {
      const int64_t n = v.length - b * block;
      target.store(to * s.blocks + b, result.result(b * block, static_cast<int>(n < block ? n : block)));
    };
    if (!apart) {
#pragma unroll 1
      for (int half = s.lanes / 2; half > 0; half /= 2) own[0].combine(shuffle_xor(own[0], half));
      if (lane == 0 && row < end) store(row, own[0]);
      continue;
    }
#pragma unroll
    for (int j = 0; j < V; ++j) all[lane * tile + own_row + j] = own[j];
    __syncthreads();
#pragma unroll 1
    for (int half = s.lanes / 2; half > 0; half /= 2) {
#pragma unroll 1
      for (int i = thread; i < half * tile; i += size) all[i].combine(all[half * tile + i]);
      __syncthreads();
    }
#pragma unroll 1
    for (int i = thread; i < tile; i += size)  // one place for all results: storing is much code
      if (row - own_row + i < end) store(row - own_row + i, all[i]);
    __syncthreads();  // before the next task writes
  }
}

/// Whether V neighbouring rows can be read as packets.
template <int V, class In, int operands>
bool moves_in_packets(const RowView& v, const Operands<In, operands>& x) {
  bool moves = v.kept.back() % V == 0;
  for (const In* at : x.at) moves = moves && is_packet_aligned<In, V>(at);
  for (int64_t i = 0; i + 1 < v.kept.rank(); ++i) moves = moves && v.kept_strides[i] % V == 0;
  for (const int64_t stride : v.reduced_strides) moves = moves && stride % V == 0;
  return moves;
}

template <class Op, int V, class In, int operands, class Target>
void reduce_any_rows(const Launch& launch, const RowView& v, int64_t blocks, const Operands<In, operands>& x,
                     const Target& target, bool in_columns) {
  const auto quotient_up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
  Shares s{.lanes = v.length <= short_length ? 1 : lanes, .blocks = blocks};
  int size = threads, shared_bytes = 0;
  if (V > 1 || (in_columns && s.lanes > 1)) {
    s.across = s.lanes == 1 ? threads : V == 1 ? 32 : 8;  // V = 1 is for memory that allows no packets
    s.side = s.lanes == 1 ? v.rows : v.kept.back();
    s.tiles = quotient_up(s.side, s.across * V);
    s.tasks = v.rows / s.side * s.tiles * blocks;
    size = s.across * s.lanes;
    shared_bytes = size * V * static_cast<int>(sizeof(Lane<Op, In>));
  } else {
    s.tasks = quotient_up(v.rows * blocks, threads / s.lanes);
  }
  rows_kernel<Op, V><<<grid_for(s.tasks, 1), size, shared_bytes, launch.stream()>>>(v, s, x, target);
  launch.check();
}

/// `elements` says that In is not a block result: those are few, and their rows are contiguous.
template <class Op, bool elements, class In, int operands, class Target>
void reduce_level(const Launch& launch, const RowView& v, int64_t blocks, const Operands<In, operands>& x,
                  const Target& target) {
  const bool in_columns = v.kept_strides.back() == 1 && v.reduced_strides.back() != 1 && v.kept.back() >= 8;
  if constexpr (elements && sizeof(In) <= 4) {  // two larger ones fill the same sectors as a packet
    constexpr int V = packet_size<In>;
    if (in_columns && moves_in_packets<V>(v, x))
      return reduce_any_rows<Op, V>(launch, v, blocks, x, target, true);
    if (const auto packets = PacketRows::of(v, x); packets && !in_columns && v.length > short_length) {
      packets_kernel<Op><<<grid_for(v.rows * blocks, threads / lanes), threads, 0, launch.stream()>>>(
          v, *packets, blocks, x, target);
      return launch.check();
    }
  }
  reduce_any_rows<Op, 1>(launch, v, blocks, x, target, in_columns && elements);
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
    const auto run = [&]<class Op, int operands = 1>(Operands<T, operands> memory) {
      const StoreResult<typename Op::Acc, A> store{Results(y), Results(extra), kind, v.length};
      reduce_rows<Op>(launch, x.device(), memory, v, store);
    };
    const bool minimum = kind == ReduceKind::min || kind == ReduceKind::argmin;
    const bool squares =
        kind == ReduceKind::sum_of_squares || kind == ReduceKind::mean_square || kind == ReduceKind::norm;
    const int variant = minimum ? -1 : squares ? 2 : 1;
    const Operands<T, 1> alone{{static_cast<const T*>(x.impl()->data())}, variant};
    switch (kind) {
      case ReduceKind::sum:
        return run.template operator()<detail::SumOp<A, false>>(alone);
      case ReduceKind::max:
      case ReduceKind::min:
        if constexpr (is_floating_v<T>) {
          if (extra.defined()) return run.template operator()<Ties<A>>(alone);
        }
        return run.template operator()<Extremum<A>>(alone);
      case ReduceKind::argmax:
      case ReduceKind::argmin:
        return run.template operator()<ArgExtremum<A>>(alone);
      default:
        break;
    }
    if constexpr (is_floating_v<T>) {
      switch (kind) {
        case ReduceKind::mean:
          return run.template operator()<detail::SumOp<A, false>>(alone);
        case ReduceKind::sum_of_magnitudes:
        case ReduceKind::mean_magnitude:
        case ReduceKind::sum_of_squares:
        case ReduceKind::mean_square:
        case ReduceKind::norm:
          if (!target.defined()) return run.template operator()<SumOfPowers<A>>(alone);
          return run.template operator()<SumOfPowers<A>, 2>({{alone.at[0], detail::ptr<T>(target)}, variant});
        case ReduceKind::logsumexp:
          return run.template operator()<LogSumExp<T>>(alone);
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
    const double divisor = std::max(0.0, static_cast<double>(v.length) - correction);
    const StoreVarMean<opmath_t<T>> store{Results(variance), Results(mean), Results(exact_mean), divisor};
    reduce_rows<detail::VarMeanOp<double>>(launch, x.device(), Operands<T, 1>{{detail::ptr<T>(x)}}, v, store);
  });
}

}  // namespace vox::cuda

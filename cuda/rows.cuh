#pragma once

#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/for_each_index.cuh>
#include <voxgrad/cuda/packet.cuh>

// Note [Rows]
//
// One mechanism for every op that reduces the rows of a tensor, does some arithmetic on each row's result,
// and maps the row's elements with it: norms, softmax, their gradients. The op is a Formula, and the loops
// here know nothing else of it. Of a formula they use:
//
//   T, inputs, x[inputs], y    the type in memory, the inputs (of one shape), the output
//   sums                       whether rows are reduced; a constant, or known at run time
//   never_sums                 optional: whether the Accs are always given to map_rows(), if they are needed
//   maps                       whether there is an output per element; a constant
//   pieces                     whether rows may have several pieces
//   Sum                        the running sums of one thread, with the numbers of the row that they need
//     start(row, v)            before any element is added; v are the values of the first
//     add(sum, l, v, n)        adds n neighbours from element l of a piece of the row on
//   Acc                        a partial result
//     none()                   of no elements
//     close(sum, n)            of the n elements of a sum
//     combine(a, b)            of both; returns the other one if one is none()
//   Row                        the numbers of a finished row
//     finish(row, acc, writes) the only place that stores results per row, if `writes`
//     map(row, l, v, n, out)   the outputs of n neighbours from element l of a piece of the row on
//
// Arithmetic is in opmath_t<T>. v holds the values of a packet. Only the first n of them count; n is a
// constant where all of them do. add and map have a first template argument, `aligned`: whether packets of
// T may be read at l from all that the formula points to.
//
// x is (pieces, rows, length), dense, and row r is x[:, r, :]: see NormGeometry. A row is walked in packets
// of 16 bytes; if the length or an address does not allow that, the same threads load the same elements one
// by one. Elements of 8 bytes always come so: two loads of a warp fill the same sectors of memory as one of
// packets. There are two forms:
//
//   held      The threads of a warp, a part of one or a block own a row. They read it once, all packets of a
//             thread at a time, into registers, reduce it, and map what they hold. One launch; for rows of
//             up to `held_bytes`.
//   chunked   One launch reduces each chunk of each row to an Acc. In the next one every block combines the
//             Accs of its row, finishes the row, and maps a chunk. It walks the chunks backwards: those that
//             were read last are still in the second-level cache. For rows too long to be held.
//
// StridedRows are the rows along a dimension of a dense tensor that is not the last. A thread owns 16 bytes
// of neighbouring rows; or one row, if they are not aligned, or in f64. If there is an output per element, it
// first copies its rows to shared memory, as far as there is room: all these copies are in flight at a time.
//
// Order: thread i of `width` adds packets i, i + width, ... of its row or chunk, or a thread adds its strided
// row in batches; the threads are combined in a binary tree, then the chunks likewise. Width, batches and
// chunks depend on the geometry, the dtype and the formula only. So results have the same bits in every run,
// on every stream and at every address. There are no atomics.

namespace vox::cuda {

/// x as (pieces, rows, length), dense.
struct ContiguousRows {
  int64_t pieces, rows, length;
};
/// x as (outer, axis, inner), dense: outer * inner rows of `axis` elements.
struct StridedRows {
  int64_t outer, axis, inner;
  int64_t rows() const { return outer * inner; }
};

namespace rows {

constexpr int64_t held_bytes = 64 << 10;  // of a row, of all inputs
constexpr int held_threads = 512;         // at most
constexpr int chunk_threads = 256;
constexpr int strided_threads = 32;               // few, so that a multiprocessor has several blocks
constexpr int64_t strided_held_bytes = 32 << 10;  // of shared memory
constexpr int finish_side = 32;

/// Packets of each input that a thread holds, at most.
template <class F>
constexpr int held_packets = static_cast<int>(held_bytes / (16 * held_threads * F::inputs));
/// Whether loops over packets are unrolled: not if that would be too much code, with a condition per element.
template <class F, bool aligned>
constexpr bool unrolls = aligned || sizeof(typename F::T) == 8;
/// Packets of a chunk in flight per thread and input.
template <class F, bool aligned>
constexpr int batch = unrolls<F, aligned> ? 4 / F::inputs : 1;
/// Elements of a strided row that are added at a time.
template <class F>
constexpr int strided_batch = 8 / F::inputs;

template <class F>
constexpr bool may_sum() {
  if constexpr (requires { F::never_sums; })
    return !F::never_sums;
  else
    return true;
}

template <class F>
using Packets = Packet<typename F::T>[F::inputs];
template <class F>
using Values = opmath_t<typename F::T>[F::inputs];

// ---- Combining threads ------------------------------------------------------------------------------------

/// Every `width` neighbouring lanes of a warp get the Acc of all of them.
template <class F>
__device__ typename F::Acc combine_lanes(typename F::Acc a, int width) {
  for (int distance = 1; distance < width; distance *= 2) {
    const auto other = shuffle_xor(a, distance);
    a = threadIdx.x & distance ? F::combine(other, a) : F::combine(a, other);
  }
  return a;
}

/// Every thread of the block gets the Acc of all of them.
template <class F>
__device__ typename F::Acc combine_block(typename F::Acc a) {
  __shared__ typename F::Acc of_warp[32];
  const unsigned lane = threadIdx.x % 32;
  a = combine_lanes<F>(a, 32);
  if (lane == 0) of_warp[threadIdx.x / 32] = a;
  __syncthreads();
  a = combine_lanes<F>(lane < blockDim.x / 32 ? of_warp[lane] : F::none(), 32);
  __syncthreads();  // before the next row writes
  return a;
}

// ---- Contiguous rows --------------------------------------------------------------------------------------

/// Packets q, q + width, q + 2 * width, ... of a row, without a division for each.
template <class F>
struct Walk {
  static constexpr int size = Packet<typename F::T>::size;
  int64_t length, packets;       // of a piece; the last packet may be short
  int64_t piece_step, row_step;  // from element l of a piece to that of the next piece, or row
  int64_t step_packets, step;    // what `width` packets add to the packet of a piece and to the address

  Walk(const ContiguousRows& g, int width)
      : length(g.length),
        packets((g.length + size - 1) / size),
        piece_step(g.rows * g.length),
        row_step(g.length),
        step_packets(F::pieces ? width % packets : width),
        step((width - step_packets) / packets * piece_step + step_packets * size) {}
};

template <class F>
struct Cursor {
  const Walk<F>& walk;
  int64_t packet, at;  // of the piece; element of x

  __device__ Cursor(const Walk<F>& w, int64_t row, int64_t q) : walk(w) {
    const int64_t piece = !F::pieces || q < w.packets ? 0 : q / w.packets;
    packet = q - piece * w.packets;
    at = piece * w.piece_step + row * w.row_step + packet * w.size;
  }
  __device__ void advance() {
    packet += walk.step_packets;
    at += walk.step;
    if (F::pieces && packet >= walk.packets) {
      packet -= walk.packets;
      at += walk.piece_step - walk.packets * walk.size;
    }
  }
  __device__ int64_t l() const { return packet * walk.size; }
  /// The number of elements of this packet.
  template <bool aligned>
  __device__ int valid() const {
    if constexpr (aligned) return walk.size;
    const int64_t rest = walk.length - l();
    return rest < walk.size ? static_cast<int>(rest) : walk.size;
  }
};

/// `last` says that the memory is not read again: it may leave the cache first.
template <bool aligned, bool last, class T>
__device__ Packet<T> load(const T* x, int n) {
  if constexpr (aligned) {
    const auto* at = reinterpret_cast<const uint4*>(x);
    const uint4 bits = last ? __ldcs(at) : *at;
    return std::bit_cast<Packet<T>>(bits);
  } else {
    Packet<T> packet{};
#pragma unroll
    for (int i = 0; i < Packet<T>::size; ++i) {
      if (i < n) packet.lane[i] = x[i];
    }
    return packet;
  }
}
template <bool aligned, class T>
__device__ void store(T* y, const Packet<T>& packet, int n) {
  if constexpr (aligned) {
    *reinterpret_cast<Packet<T>*>(y) = packet;
  } else {
#pragma unroll
    for (int i = 0; i < Packet<T>::size; ++i) {
      if (i < n) y[i] = packet.lane[i];
    }
  }
}

/// Lane i of each input's packet.
template <class F>
__device__ void values_of(const Packets<F>& packets, int i, Values<F>& v) {
#pragma unroll
  for (int k = 0; k < F::inputs; ++k) v[k] = packets[k].lane[i];
}

template <class F, bool aligned, bool last>
__device__ void load_packets(const F& f, int64_t at, int valid, Packets<F>& in) {
#pragma unroll
  for (int k = 0; k < F::inputs; ++k) in[k] = load<aligned, last>(f.x[k] + at, valid);
}

template <class F, bool aligned>
__device__ void add_packets(const F& f, typename F::Sum& sum, int64_t l, const Packets<F>& in, int valid) {
  constexpr int size = Packet<typename F::T>::size;
  Values<F> v[size];
#pragma unroll
  for (int j = 0; j < size; ++j) values_of<F>(in, j, v[j]);
  f.template add<aligned>(sum, l, v, valid);
}

template <class F, bool aligned>
__device__ void map_packets(const F& f, const typename F::Row& r, int64_t l, int64_t at, const Packets<F>& in,
                            int valid) {
  using T = typename F::T;
  constexpr int size = Packet<T>::size;
  Values<F> v[size];
  opmath_t<T> out[size];
#pragma unroll
  for (int j = 0; j < size; ++j) values_of<F>(in, j, v[j]);
  f.template map<aligned>(r, l, v, valid, out);
  Packet<T> packet;
#pragma unroll
  for (int j = 0; j < size; ++j) packet.lane[j] = T(out[j]);
  store<aligned>(f.y + at, packet, valid);
}

/// `width` threads own a row: a power of two up to 32, or the block. Row first + y of a block is that of
/// threads (0, y), (1, y), ... If the loops are unrolled, `in` is in registers. Else it is in local memory,
/// which is the first-level cache.
template <class F, bool aligned>
__global__ void __launch_bounds__(held_threads) held_kernel(F f, Walk<F> walk, int64_t rows, int packets) {
  constexpr int most = held_packets<F>, unrolled = unrolls<F, aligned> ? most : 1;
  const int lane = static_cast<int>(threadIdx.x), width = static_cast<int>(blockDim.x);
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.y; first < rows;
       first += static_cast<int64_t>(gridDim.x) * blockDim.y) {
    const int64_t row = first + threadIdx.y;
    const int end = row < rows ? packets : 0;
    Packets<F> in[most];
    Cursor<F> c(walk, row, lane);
    const int64_t packet = c.packet, at = c.at;
#pragma unroll unrolled
    for (int u = 0; u < most; ++u) {
      if (lane + u * width < end) load_packets<F, aligned, true>(f, c.at, c.template valid<aligned>(), in[u]);
      c.advance();
    }
    auto acc = F::none();
    if (may_sum<F>() && f.sums) {
      if (lane < end) {
        Values<F> v;
        values_of<F>(in[0], 0, v);
        typename F::Sum sum = f.start(row, v);
        int count = 0;
        c.packet = packet, c.at = at;
#pragma unroll unrolled
        for (int u = 0; u < most; ++u) {
          if (lane + u * width < end) {
            add_packets<F, aligned>(f, sum, c.l(), in[u], c.template valid<aligned>());
            count += c.template valid<aligned>();
          }
          c.advance();
        }
        acc = f.close(sum, count);
      }
      acc = width > 32 ? combine_block<F>(acc) : combine_lanes<F>(acc, width);
    }
    if (lane >= end) continue;
    const auto r = f.finish(row, acc, lane == 0);
    if constexpr (F::maps) {
      c.packet = packet, c.at = at;
#pragma unroll unrolled
      for (int u = 0; u < most; ++u) {
        if (lane + u * width < end)
          map_packets<F, aligned>(f, r, c.l(), c.at, in[u], c.template valid<aligned>());
        c.advance();
      }
    }
  }
}

/// How rows are cut: chunk c of a row has the packets from c * size on.
struct Chunks {
  int64_t packets;  // of a row
  int64_t size, count, tasks;

  /// Chunks of 64 KiB, or smaller ones if they do not fill the GPU, but at most as many as a block combines
  /// in passing.
  Chunks(int64_t rows, int64_t packets) : packets(packets) {
    const int64_t most = rows >= 8 ? 256 : 1024, wanted = 2048 / rows;
    count = std::clamp<int64_t>(std::max(packets / 4096, std::min(packets / 1024, wanted)), 1, most);
    size = (packets + count - 1) / count;
    size = (size + chunk_threads - 1) / chunk_threads * chunk_threads;
    count = (packets + size - 1) / size;
    tasks = rows * count;
  }
  /// How many packets of chunk c this thread has.
  __device__ int of_thread(int64_t c) const {
    const int64_t end = packets < (c + 1) * size ? packets : (c + 1) * size;
    const int64_t first = c * size + threadIdx.x;
    return first < end ? static_cast<int>((end - first + chunk_threads - 1) / chunk_threads) : 0;
  }
};

/// Block b reduces chunk b % count of row b / count.
template <class F, bool aligned>
__global__ void __launch_bounds__(chunk_threads)
    chunk_sums_kernel(F f, Walk<F> walk, Chunks chunks, typename F::Acc* sums) {
  constexpr int batch = rows::batch<F, aligned>;
  for (int64_t task = blockIdx.x; task < chunks.tasks; task += gridDim.x) {
    const int64_t row = task / chunks.count, chunk = task % chunks.count;
    Cursor<F> c(walk, row, chunk * chunks.size + threadIdx.x);
    const int n = chunks.of_thread(chunk);
    auto acc = F::none();
    if (n > 0) {
      Values<F> v;
#pragma unroll
      for (int k = 0; k < F::inputs; ++k) v[k] = f.x[k][c.at];
      typename F::Sum sum = f.start(row, v);
      int64_t count = 0;
#pragma unroll 1
      for (int i = 0; i < n; i += batch) {
        Packets<F> in[batch];
        int64_t l[batch];
        int valid[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          l[u] = c.l();
          valid[u] = c.template valid<aligned>();
          if (i + u < n) load_packets<F, aligned, false>(f, c.at, valid[u], in[u]);
          c.advance();
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          if (i + u >= n) break;
          add_packets<F, aligned>(f, sum, l[u], in[u], valid[u]);
          count += valid[u];
        }
      }
      acc = f.close(sum, count);
    }
    acc = combine_block<F>(acc);
    if (threadIdx.x == 0) sums[task] = acc;
  }
}

/// Maps the chunks, the last one first. The Acc of a row is that of sums[row * count], ..., count of them.
template <class F, bool aligned>
__global__ void __launch_bounds__(chunk_threads)
    chunk_map_kernel(F f, Walk<F> walk, Chunks chunks, const typename F::Acc* sums, int64_t count) {
  constexpr int batch = rows::batch<F, aligned>;
  for (int64_t task = chunks.tasks - 1 - blockIdx.x; task >= 0; task -= gridDim.x) {
    const int64_t row = task / chunks.count, chunk = task % chunks.count;
    auto acc = F::none();
    if (count > 0) {
      for (int64_t i = threadIdx.x; i < count; i += chunk_threads)
        acc = F::combine(acc, sums[row * count + i]);
      acc = combine_block<F>(acc);
    }
    const auto r = f.finish(row, acc, chunk == 0 && threadIdx.x == 0);
    Cursor<F> c(walk, row, chunk * chunks.size + threadIdx.x);
    const int n = chunks.of_thread(chunk);
#pragma unroll 1
    for (int i = 0; i < n; i += batch) {
      Packets<F> in[batch];
      int64_t l[batch], at[batch];
      int valid[batch];
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        l[u] = c.l();
        at[u] = c.at;
        valid[u] = c.template valid<aligned>();
        if (i + u < n) load_packets<F, aligned, true>(f, at[u], valid[u], in[u]);
        c.advance();
      }
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        if (i + u < n) map_packets<F, aligned>(f, r, l[u], at[u], in[u], valid[u]);
      }
    }
  }
}

/// Finishes rows whose Acc is that of sums[row * row_step + i * step] for i < count. 32 threads per row.
template <class F>
__global__ void __launch_bounds__(finish_side* finish_side)
    finish_kernel(F f, int64_t rows, const typename F::Acc* sums, int64_t count, int64_t row_step,
                  int64_t step) {
  __shared__ typename F::Acc of_thread[finish_side][finish_side + 1];
  const int own = threadIdx.x % finish_side, i = threadIdx.x / finish_side;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * finish_side; first < rows;
       first += static_cast<int64_t>(gridDim.x) * finish_side) {
    const int64_t row = first + own;
    auto acc = F::none();
    if (row < rows) {
#pragma unroll 8
      for (int64_t j = i; j < count; j += finish_side) acc = F::combine(acc, sums[row * row_step + j * step]);
    }
    of_thread[own][i] = acc;
    __syncthreads();
    acc = combine_lanes<F>(of_thread[i][own], finish_side);  // of row first + i
    if (own == 0 && first + i < rows) f.finish(first + i, acc, true);
    __syncthreads();
  }
}

template <class F>
bool is_aligned(const F& f) {
  bool aligned = !F::maps || is_packet_aligned(f.y);
  for (const auto* x : f.x) aligned = aligned && is_packet_aligned(x);
  if constexpr (requires { f.is_aligned(); }) aligned = aligned && f.is_aligned();
  return aligned;
}

template <class F>
void finish(const Launch& launch, const F& f, int64_t rows, const typename F::Acc* sums, int64_t count,
            int64_t row_step, int64_t step) {
  finish_kernel<F><<<grid_for(rows, finish_side), finish_side * finish_side, 0, launch.stream()>>>(
      f, rows, sums, count, row_step, step);
  launch.check();
}

template <bool aligned, class F>
void hold(const Launch& launch, const F& f, const ContiguousRows& g, int64_t packets) {
  constexpr int64_t most = held_packets<F>, parts_of_warps = 128;  // threads of a block of several rows
  // A row of few packets is still read 32 bytes at a time.
  const int64_t needed = std::max((packets + most - 1) / most, std::min<int64_t>(packets, 2));
  const auto width = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(needed)));
  const auto each = width > 32 ? 1 : parts_of_warps / width;
  const dim3 threads(static_cast<unsigned>(width), static_cast<unsigned>(each));
  held_kernel<F, aligned><<<grid_for(g.rows, static_cast<int>(each)), threads, 0, launch.stream()>>>(
      f, Walk<F>(g, static_cast<int>(width)), g.rows, static_cast<int>(packets));
  launch.check();
}

template <bool aligned, class F>
void map_chunks(const Launch& launch, const F& f, const ContiguousRows& g, const Chunks& chunks,
                const typename F::Acc* sums, int64_t count) {
  chunk_map_kernel<F, aligned><<<grid_for(chunks.tasks, 1), chunk_threads, 0, launch.stream()>>>(
      f, Walk<F>(g, chunk_threads), chunks, sums, count);
  launch.check();
}

/// Sums rows, then maps or only finishes them.
template <bool aligned, class F>
void sum_chunks(const Launch& launch, const F& f, const ContiguousRows& g, const Chunks& chunks) {
  const Workspace memory(launch, chunks.tasks * static_cast<int64_t>(sizeof(typename F::Acc)));
  auto* sums = memory.as<typename F::Acc>();
  chunk_sums_kernel<F, aligned><<<grid_for(chunks.tasks, 1), chunk_threads, 0, launch.stream()>>>(
      f, Walk<F>(g, chunk_threads), chunks, sums);
  launch.check();
  if constexpr (F::maps)
    map_chunks<aligned>(launch, f, g, chunks, sums, chunks.count);
  else
    finish(launch, f, g.rows, sums, chunks.count, chunks.count, 1);
}

template <bool aligned, class F>
void run(const Launch& launch, const F& f, const ContiguousRows& g) {
  const int64_t packets = g.pieces * Walk<F>(g, chunk_threads).packets;
  if (packets * F::inputs * 16 <= held_bytes) return hold<aligned>(launch, f, g, packets);
  const Chunks chunks(g.rows, packets);
  if constexpr (F::maps) {
    if (!may_sum<F>() || !f.sums) return map_chunks<aligned>(launch, f, g, chunks, nullptr, 0);
  }
  if constexpr (may_sum<F>()) sum_chunks<aligned>(launch, f, g, chunks);
}

template <class F, class Run>
void visit_alignment(const F& f, const ContiguousRows& g, Run run) {
  using T = typename F::T;
  if constexpr (sizeof(T) < 8) {
    if (g.length % Packet<T>::size == 0 && is_aligned(f)) return run.template operator()<true>();
  }
  run.template operator()<false>();
}

// ---- Strided rows -----------------------------------------------------------------------------------------

/// Thread t owns the V rows from V * t on. Block row y has the elements of the rows from y * chunk on; if
/// there are several, the Accs go to sums[y * rows + row]. The first `held` elements are in shared memory.
template <class F, int V>
__global__ void __launch_bounds__(strided_threads)
    strided_kernel(F f, StridedRows g, int held, int64_t chunk, typename F::Acc* sums) {
  using T = typename F::T;
  constexpr int batch = strided_batch<F>;
  struct alignas(sizeof(T) * V) Group {
    T lane[V];
  };
  extern __shared__ uint4 kept[];
  Group* const mine = reinterpret_cast<Group*>(kept) + threadIdx.x;
  const auto slot = [&](int64_t l, int k) -> Group& {
    return mine[(static_cast<int>(l) * F::inputs + k) * strided_threads];
  };
  const int64_t groups = g.inner / V, begin = blockIdx.y * chunk;
  const int64_t end = g.axis < begin + chunk ? g.axis : begin + chunk;
  for (int64_t group = first_index(); group < g.outer * groups; group += index_step()) {
    const int64_t outer = group / groups, row = group * V;
    const int64_t first = outer * (g.axis - 1) * g.inner + row;  // element 0 of the row
    const auto from = [&](int64_t l, int k) {
      return reinterpret_cast<const Group*>(f.x[k] + first + l * g.inner);
    };
    if constexpr (F::maps) {
#pragma unroll 8
      for (int l = 0; l < held; ++l) {
#pragma unroll
        for (int k = 0; k < F::inputs; ++k) {
          if constexpr (sizeof(Group) >= 4)
            __pipeline_memcpy_async(&slot(l, k), from(l, k), sizeof(Group));
          else
            slot(l, k) = *from(l, k);
        }
      }
      __pipeline_commit();
      __pipeline_wait_prior(0);
    }
    // Calls step(v, l): v[j] are the values of row j from element l on, as many as the array has. The last
    // ones come one by one.
    const auto for_batches = [&](auto step) {
      const auto visit = [&]<int n>(std::integral_constant<int, n>, int64_t l) {
        Group in[n][F::inputs];
        if (F::maps && l < held) {  // all of the batch is: run_strided() sees to it
#pragma unroll
          for (int u = 0; u < n; ++u) {
#pragma unroll
            for (int k = 0; k < F::inputs; ++k) in[u][k] = slot(l + u, k);
          }
        } else {
          int64_t at = first + l * g.inner;
#pragma unroll
          for (int u = 0; u < n; ++u, at += g.inner) {
#pragma unroll
            for (int k = 0; k < F::inputs; ++k) in[u][k] = *reinterpret_cast<const Group*>(f.x[k] + at);
          }
        }
        Values<F> v[V][n];
#pragma unroll
        for (int j = 0; j < V; ++j) {
#pragma unroll
          for (int u = 0; u < n; ++u) {
#pragma unroll
            for (int k = 0; k < F::inputs; ++k) v[j][u][k] = in[u][k].lane[j];
          }
        }
        step(v, l);
      };
      int64_t l = begin;
#pragma unroll 1
      for (; l + batch <= end; l += batch) visit(std::integral_constant<int, batch>(), l);
#pragma unroll 1
      for (; l < end; ++l) visit(std::integral_constant<int, 1>(), l);
    };

    Values<F> v;
    typename F::Sum sum[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
#pragma unroll
      for (int k = 0; k < F::inputs; ++k) v[k] = f.x[k][first + begin * g.inner + j];
      sum[j] = f.start(row + j, v);
    }
    for_batches([&]<int n>(const Values<F>(&v)[V][n], int64_t l) {
#pragma unroll
      for (int j = 0; j < V; ++j) f.template add<false>(sum[j], l, v[j], n);
    });
    typename F::Row r[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const auto acc = f.close(sum[j], end - begin);
      if (sums)
        sums[blockIdx.y * (g.outer * g.inner) + row + j] = acc;
      else
        r[j] = f.finish(row + j, acc, true);
    }
    if constexpr (F::maps) {
      for_batches([&]<int n>(const Values<F>(&v)[V][n], int64_t l) {
        opmath_t<T> out[V][n];
#pragma unroll
        for (int j = 0; j < V; ++j) f.template map<false>(r[j], l, v[j], n, out[j]);
#pragma unroll
        for (int u = 0; u < n; ++u) {
          Group to;
#pragma unroll
          for (int j = 0; j < V; ++j) to.lane[j] = T(out[j][u]);
          *reinterpret_cast<Group*>(f.y + first + (l + u) * g.inner) = to;
        }
      });
    }
  }
}

template <int V, class F>
void run_strided(const Launch& launch, const F& f, const StridedRows& g) {
  constexpr int64_t slot_bytes = int64_t{strided_threads} * F::inputs * V * sizeof(typename F::T);
  const int64_t groups = g.rows() / V;
  const unsigned blocks = grid_for(groups, strided_threads);
  if constexpr (F::maps) {
    static_assert(strided_held_bytes / slot_bytes % strided_batch<F> == 0);
    const int64_t held = std::min(g.axis, strided_held_bytes / slot_bytes);
    strided_kernel<F, V><<<blocks, strided_threads, held * slot_bytes, launch.stream()>>>(
        f, g, static_cast<int>(held), g.axis, nullptr);
    launch.check();
  } else {
    // Enough chunks to fill the GPU. V does not enter: the order of the additions depends on the geometry.
    const int64_t wanted = std::max<int64_t>(1, (int64_t{1} << 19) / g.rows());
    const int64_t size = std::max<int64_t>(32, (g.axis + wanted - 1) / wanted);
    const int64_t chunk = std::max(size, (g.axis + 1023) / 1024), count = (g.axis + chunk - 1) / chunk;
    const int64_t bytes = count * g.rows() * static_cast<int64_t>(sizeof(typename F::Acc));
    const Workspace memory(launch, count > 1 ? bytes : 0);
    auto* sums = memory.as<typename F::Acc>();
    strided_kernel<F, V><<<dim3(blocks, static_cast<unsigned>(count)), strided_threads, 0, launch.stream()>>>(
        f, g, 0, chunk, sums);
    launch.check();
    if (count > 1) finish(launch, f, g.rows(), sums, count, 1, g.rows());
  }
}

}  // namespace rows

/// Reduces, finishes and maps the rows of f's inputs. There are elements.
template <class F>
void map_rows(const Launch& launch, const F& f, const ContiguousRows& g) {
  rows::visit_alignment(f, g, [&]<bool aligned>() { rows::run<aligned>(launch, f, g); });
}
/// Likewise, if the Acc of row r is that of sums[r * count], ..., count of them.
template <class F>
void map_rows(const Launch& launch, const F& f, const ContiguousRows& g, const typename F::Acc* sums,
              int64_t count) {
  const int64_t packets = g.pieces * rows::Walk<F>(g, 1).packets;
  rows::visit_alignment(f, g, [&]<bool aligned>() {
    rows::map_chunks<aligned>(launch, f, g, rows::Chunks(g.rows, packets), sums, count);
  });
}
template <class F>
void map_rows(const Launch& launch, const F& f, const StridedRows& g) {
  using T = typename F::T;
  if constexpr (constexpr int size = Packet<T>::size; sizeof(T) < 8) {
    if (g.inner % size == 0 && rows::is_aligned(f)) return rows::run_strided<size>(launch, f, g);
  }
  rows::run_strided<1>(launch, f, g);
}
/// Only finishes rows: the Acc of row r is that of sums[r + i * rows] for i < count.
template <class F>
void finish_rows(const Launch& launch, const F& f, int64_t rows, const typename F::Acc* sums, int64_t count) {
  rows::finish(launch, f, rows, sums, count, 1, rows);
}

}  // namespace vox::cuda

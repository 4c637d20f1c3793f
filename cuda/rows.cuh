#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

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
//   sums, maps                 whether rows are reduced; whether there is an output per element
//   Cell                       what the arithmetic must know of an element besides its values
//     cells(row, l, n, c)      the cells of n neighbours from element l of a piece of the row on
//     cell(row, l)             the same for one element of a strided row
//   Sum                        the running sums of one thread, with the numbers of the row that they need
//     start(row, v)            before any element is added; v are the values of the first
//     add(sum, cell, v)
//   Acc                        a partial result
//     none()                   of no elements
//     close(sum, n)            of the n elements of a sum
//     combine(a, b)            of both; returns the other one if one is none()
//   Row                        the numbers of a finished row
//     finish(row, acc, writes) the only place that stores results per row, if `writes`
//     map(row, cell, v)        the output of one element
//
// Arithmetic is in opmath_t<T>.
//
// x is (pieces, rows, length), dense, and row r is x[:, r, :]: see NormGeometry. A row is walked in packets
// of 16 bytes; if the length or an address does not allow that, the same threads load the same elements one
// by one. There are two forms:
//
//   held      The threads of a warp, a part of one or a block own a row. They read it once, keep it in shared
//             memory, reduce it, and map what they kept. One launch; for rows of up to `held_bytes`.
//   chunked   One launch reduces each chunk of each row to an Acc. In the next one every block combines the
//             Accs of its row, finishes the row, and maps a chunk. It walks the chunks backwards: those that
//             were read last are still in the second-level cache. For rows too long to be held.
//
// StridedRows are the rows along a dimension of a dense tensor that is not the last. A thread owns 16 bytes
// of neighbouring rows, and keeps what it reads in shared memory as far as there is room.
//
// Order: thread i of `width` adds packets i, i + width, ... of its row or chunk; the threads are combined in
// a binary tree, then the chunks likewise. Width and chunks depend on the geometry, the dtype and the number
// of inputs only. So results have the same bits in every run, on every stream and at every address. There are
// no atomics.

namespace vox::cuda {

/// The Cell of a formula whose elements are all alike.
struct Nothing {};

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

constexpr int64_t held_bytes = 64 << 10;  // of shared memory: 3 blocks fit a multiprocessor of Hopper
constexpr int held_threads = 512;         // at most
constexpr int chunk_threads = 256;
constexpr int strided_threads = 128;
constexpr int finish_side = 32;
constexpr unsigned all_lanes = 0xffffffff;

/// Packets in flight per thread and input.
template <class F, bool aligned = true>
constexpr int batch = !aligned         ? 1
                      : F::inputs == 1 ? 4
                                       : 2;

template <class F>
using Packets = Packet<typename F::T>[F::inputs];
template <class F>
using Values = opmath_t<typename F::T>[F::inputs];

// ---- Combining threads ------------------------------------------------------------------------------------

template <class A>
__device__ A shuffle_xor(const A& a, int mask) {
  static_assert(sizeof(A) % 4 == 0);
  struct Words {
    unsigned word[sizeof(A) / 4];
  } w = std::bit_cast<Words>(a);
#pragma unroll
  for (unsigned& word : w.word) word = __shfl_xor_sync(all_lanes, word, mask);
  return std::bit_cast<A>(w);
}

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
template <class T>
struct Walk {
  static constexpr int size = Packet<T>::size;
  int64_t length, packets;       // of a piece; the last packet may be short
  int64_t piece_step, row_step;  // from element l of a piece to that of the next piece, or row
  int64_t step_packets, step;    // what `width` packets add to the packet of a piece and to the address

  Walk(const ContiguousRows& g, int width)
      : length(g.length),
        packets((g.length + size - 1) / size),
        piece_step(g.rows * g.length),
        row_step(g.length),
        step_packets(width % packets),
        step(width / packets * piece_step + step_packets * size) {}
};

template <class T>
struct Cursor {
  const Walk<T>& walk;
  int64_t packet, at;  // of the piece; element of x

  __device__ Cursor(const Walk<T>& w, int64_t row, int64_t q) : walk(w) {
    const int64_t piece = q < w.packets ? 0 : q / w.packets;
    packet = q - piece * w.packets;
    at = piece * w.piece_step + row * w.row_step + packet * w.size;
  }
  __device__ void advance() {
    packet += walk.step_packets;
    at += walk.step;
    if (packet >= walk.packets) {
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

/// The packets that a thread keeps in shared memory. Neighbouring threads have neighbouring ones.
template <class F>
struct Kept {
  using P = Packet<typename F::T>;
  P* mine;  // null: nothing is kept

  __device__ P& of(int i, int k) const { return mine[(i * F::inputs + k) * static_cast<int>(blockDim.x)]; }
};
template <class F>
__device__ Kept<F> kept_here() {
  extern __shared__ uint4 kept[];
  return {reinterpret_cast<Packet<typename F::T>*>(kept) + threadIdx.x};
}

/// The Acc of n packets. Keeps them if `keep`.
template <class F, bool aligned, bool keep>
__device__ typename F::Acc sum_packets(const F& f, Cursor<typename F::T> c, int64_t row, int n,
                                       Kept<F> kept) {
  using T = typename F::T;
  constexpr int size = Packet<T>::size, batch = rows::batch<F, aligned>;
  if (n <= 0) return F::none();
  Values<F> v;
  if constexpr (F::sums) {
#pragma unroll
    for (int k = 0; k < F::inputs; ++k) v[k] = f.x[k][c.at];
  }
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
      valid[u] = i + u < n ? c.template valid<aligned>() : 0;
      if (i + u < n) {
#pragma unroll
        for (int k = 0; k < F::inputs; ++k) in[u][k] = load<aligned, keep>(f.x[k] + c.at, valid[u]);
      }
      c.advance();
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      if (i + u >= n) break;
      if constexpr (keep) {
#pragma unroll
        for (int k = 0; k < F::inputs; ++k) kept.of(i + u, k) = in[u][k];
      }
      if constexpr (F::sums) {
        typename F::Cell cell[size];
        f.cells(row, l[u], valid[u], cell);
#pragma unroll
        for (int j = 0; j < size; ++j) {
          values_of<F>(in[u], j, v);
          if (aligned || j < valid[u]) f.add(sum, cell[j], v);
        }
        count += valid[u];
      }
    }
  }
  return f.close(sum, count);
}

/// Maps n packets, from shared memory if `keep`.
template <class F, bool aligned, bool keep>
__device__ void map_packets(const F& f, Cursor<typename F::T> c, int64_t row, const typename F::Row& r, int n,
                            Kept<F> kept) {
  using T = typename F::T;
  constexpr int size = Packet<T>::size, batch = rows::batch<F, aligned>;
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
      if (i + u < n) {
#pragma unroll
        for (int k = 0; k < F::inputs; ++k) {
          if constexpr (keep)
            in[u][k] = kept.of(i + u, k);
          else
            in[u][k] = load<aligned, true>(f.x[k] + c.at, valid[u]);
        }
      }
      c.advance();
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      if (i + u >= n) break;
      typename F::Cell cell[size];
      f.cells(row, l[u], valid[u], cell);
      Packet<T> out;
#pragma unroll
      for (int j = 0; j < size; ++j) {
        Values<F> v;
        values_of<F>(in[u], j, v);
        out.lane[j] = T(f.map(r, cell[j], v));
      }
      store<aligned>(f.y + at[u], out, valid[u]);
    }
  }
}

/// `width` threads own a row: a power of two up to 32, or the block. Each has up to `packets` of its packets.
template <class F, bool aligned>
__global__ void __launch_bounds__(held_threads)
    held_kernel(F f, Walk<typename F::T> walk, int64_t rows, int packets, int width) {
  const int each = static_cast<int>(blockDim.x) / width;  // rows of a block
  const int lane = static_cast<int>(threadIdx.x) % width, own = static_cast<int>(threadIdx.x) / width;
  const Kept<F> kept = kept_here<F>();
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * each; first < rows;
       first += static_cast<int64_t>(gridDim.x) * each) {
    const int64_t row = first + own;
    const bool exists = row < rows;
    const int n = exists ? (packets - lane + width - 1) / width : 0;
    const Cursor<typename F::T> c(walk, row, lane);
    auto acc = sum_packets<F, aligned, F::maps>(f, c, row, n, kept);
    if constexpr (F::sums) acc = width > 32 ? combine_block<F>(acc) : combine_lanes<F>(acc, width);
    if (!exists) continue;
    const auto r = f.finish(row, acc, lane == 0);
    if constexpr (F::maps) map_packets<F, aligned, true>(f, c, row, r, n, kept);
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
    chunk_sums_kernel(F f, Walk<typename F::T> walk, Chunks chunks, typename F::Acc* sums) {
  for (int64_t task = blockIdx.x; task < chunks.tasks; task += gridDim.x) {
    const int64_t row = task / chunks.count, chunk = task % chunks.count;
    const Cursor<typename F::T> c(walk, row, chunk * chunks.size + threadIdx.x);
    auto acc = sum_packets<F, aligned, false>(f, c, row, chunks.of_thread(chunk), {});
    acc = combine_block<F>(acc);
    if (threadIdx.x == 0) sums[task] = acc;
  }
}

/// Maps the chunks, the last one first. The Acc of a row is that of sums[row * count], ..., count of them.
template <class F, bool aligned>
__global__ void __launch_bounds__(chunk_threads)
    chunk_map_kernel(F f, Walk<typename F::T> walk, Chunks chunks, const typename F::Acc* sums,
                     int64_t count) {
  for (int64_t task = chunks.tasks - 1 - blockIdx.x; task >= 0; task -= gridDim.x) {
    const int64_t row = task / chunks.count, chunk = task % chunks.count;
    auto acc = F::none();
    if (count > 0) {
      for (int64_t i = threadIdx.x; i < count; i += chunk_threads)
        acc = F::combine(acc, sums[row * count + i]);
      acc = combine_block<F>(acc);
    }
    const auto r = f.finish(row, acc, chunk == 0 && threadIdx.x == 0);
    const Cursor<typename F::T> c(walk, row, chunk * chunks.size + threadIdx.x);
    map_packets<F, aligned, false>(f, c, row, r, chunks.of_thread(chunk), {});
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
#pragma unroll 4
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
  constexpr int parts_of_warps = 128;  // threads of a block that has several rows
  const auto threads_for = [&](int64_t each) {
    return static_cast<int>(std::bit_ceil(static_cast<uint64_t>((packets + each - 1) / each)));
  };
  const bool in_warp = packets <= 64;
  const int width = in_warp ? threads_for(2) : std::clamp(threads_for(4), 64, held_threads);
  const int threads = in_warp ? parts_of_warps : width;
  const int64_t slots = (packets + width - 1) / width;
  const int shared = F::maps ? static_cast<int>(slots * F::inputs * threads * 16) : 0;
  launch.allow_shared_memory<held_kernel<F, aligned>>(shared);
  held_kernel<F, aligned><<<grid_for(g.rows, threads / width), threads, shared, launch.stream()>>>(
      f, Walk<typename F::T>(g, width), g.rows, static_cast<int>(packets), width);
  launch.check();
}

template <bool aligned, class F>
void map_chunks(const Launch& launch, const F& f, const ContiguousRows& g, const Chunks& chunks,
                const typename F::Acc* sums, int64_t count) {
  chunk_map_kernel<F, aligned><<<grid_for(chunks.tasks, 1), chunk_threads, 0, launch.stream()>>>(
      f, Walk<typename F::T>(g, chunk_threads), chunks, sums, count);
  launch.check();
}

template <bool aligned, class F>
void run(const Launch& launch, const F& f, const ContiguousRows& g) {
  const Walk<typename F::T> walk(g, chunk_threads);
  const int64_t packets = g.pieces * walk.packets;
  if (packets * F::inputs * 16 <= held_bytes) return hold<aligned>(launch, f, g, packets);
  const Chunks chunks(g.rows, packets);
  if constexpr (F::sums) {
    const Workspace memory(launch, chunks.tasks * static_cast<int64_t>(sizeof(typename F::Acc)));
    auto* sums = memory.as<typename F::Acc>();
    chunk_sums_kernel<F, aligned>
        <<<grid_for(chunks.tasks, 1), chunk_threads, 0, launch.stream()>>>(f, walk, chunks, sums);
    launch.check();
    if constexpr (F::maps)
      map_chunks<aligned>(launch, f, g, chunks, sums, chunks.count);
    else
      finish(launch, f, g.rows, sums, chunks.count, chunks.count, 1);
  } else {
    map_chunks<aligned>(launch, f, g, chunks, nullptr, 0);
  }
}

template <class F, class Run>
void visit_alignment(const F& f, const ContiguousRows& g, Run run) {
  if (g.length % Packet<typename F::T>::size == 0 && is_aligned(f))
    run.template operator()<true>();
  else
    run.template operator()<false>();
}

// ---- Strided rows -----------------------------------------------------------------------------------------

/// Thread t owns the V rows from V * t on. Block row y has the elements of the rows from y * chunk on; if
/// there are several, the Accs go to sums[y * rows + row]. The first `held` elements are kept.
template <class F, int V>
__global__ void __launch_bounds__(strided_threads)
    strided_kernel(F f, StridedRows g, int held, int64_t chunk, typename F::Acc* sums) {
  using T = typename F::T;
  constexpr int batch = rows::batch<F>;
  struct alignas(sizeof(T) * V) Group {
    T lane[V];
  };
  extern __shared__ uint4 kept[];
  Group* const mine = reinterpret_cast<Group*>(kept) + threadIdx.x;
  const int64_t groups = g.inner / V, begin = blockIdx.y * chunk;
  const int64_t end = g.axis < begin + chunk ? g.axis : begin + chunk;
  for (int64_t group = first_index(); group < g.outer * groups; group += index_step()) {
    const int64_t outer = group / groups, row = group * V;
    const int64_t first = outer * (g.axis - 1) * g.inner + row;  // element 0 of the row
    const auto group_of = [&](int k, int64_t l) {
      return *reinterpret_cast<const Group*>(f.x[k] + first + l * g.inner);
    };
    const auto slot = [&](int64_t l, int k) -> Group& { return mine[(l * F::inputs + k) * strided_threads]; };

    Values<F> v;
    typename F::Sum sum[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
#pragma unroll
      for (int k = 0; k < F::inputs; ++k) v[k] = f.x[k][first + begin * g.inner + j];
      sum[j] = f.start(row + j, v);
    }
#pragma unroll 1
    for (int64_t l = begin; l < end; l += batch) {
      Group in[batch][F::inputs];
#pragma unroll
      for (int u = 0; u < batch; ++u) {
#pragma unroll
        for (int k = 0; k < F::inputs; ++k) {
          if (l + u < end) in[u][k] = group_of(k, l + u);
        }
      }
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        if (l + u >= end) break;
#pragma unroll
        for (int k = 0; k < F::inputs; ++k) {
          if (F::maps && l + u < held) slot(l + u, k) = in[u][k];
        }
#pragma unroll
        for (int j = 0; j < V; ++j) {
#pragma unroll
          for (int k = 0; k < F::inputs; ++k) v[k] = in[u][k].lane[j];
          f.add(sum[j], f.cell(row + j, l + u), v);
        }
      }
    }

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
#pragma unroll 1
      for (int64_t l = 0; l < g.axis; l += batch) {
        Group in[batch][F::inputs];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
#pragma unroll
          for (int k = 0; k < F::inputs; ++k) {
            if (l + u < g.axis) in[u][k] = l + u < held ? slot(l + u, k) : group_of(k, l + u);
          }
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          if (l + u >= g.axis) break;
          Group out;
#pragma unroll
          for (int j = 0; j < V; ++j) {
#pragma unroll
            for (int k = 0; k < F::inputs; ++k) v[k] = in[u][k].lane[j];
            out.lane[j] = T(f.map(r[j], f.cell(row + j, l + u), v));
          }
          *reinterpret_cast<Group*>(f.y + first + (l + u) * g.inner) = out;
        }
      }
    }
  }
}

template <int V, class F>
void run_strided(const Launch& launch, const F& f, const StridedRows& g) {
  constexpr int64_t slot_bytes = int64_t{strided_threads} * F::inputs * V * sizeof(typename F::T);
  const int64_t groups = g.rows() / V;
  const unsigned blocks = grid_for(groups, strided_threads);
  if constexpr (F::maps) {
    const int64_t held = std::min(g.axis, held_bytes / slot_bytes);
    launch.allow_shared_memory<strided_kernel<F, V>>(static_cast<int>(held * slot_bytes));
    strided_kernel<F, V><<<blocks, strided_threads, held * slot_bytes, launch.stream()>>>(
        f, g, static_cast<int>(held), g.axis, nullptr);
    return launch.check();
  }
  // Enough chunks to fill the GPU. V does not enter: the order of the additions depends on the geometry.
  const int64_t wanted = std::max<int64_t>(1, (int64_t{1} << 19) / g.rows());
  const int64_t size = std::max<int64_t>(32, (g.axis + wanted - 1) / wanted);
  const int64_t chunk = std::max(size, (g.axis + 511) / 512), count = (g.axis + chunk - 1) / chunk;
  const int64_t bytes = count * g.rows() * static_cast<int64_t>(sizeof(typename F::Acc));
  const Workspace memory(launch, count > 1 ? bytes : 0);
  auto* sums = memory.as<typename F::Acc>();
  strided_kernel<F, V><<<dim3(blocks, static_cast<unsigned>(count)), strided_threads, 0, launch.stream()>>>(
      f, g, 0, chunk, sums);
  launch.check();
  if (count > 1) finish(launch, f, g.rows(), sums, count, 1, g.rows());
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
  const int64_t packets = g.pieces * rows::Walk<typename F::T>(g, 1).packets;
  rows::visit_alignment(f, g, [&]<bool aligned>() {
    rows::map_chunks<aligned>(launch, f, g, rows::Chunks(g.rows, packets), sums, count);
  });
}
template <class F>
void map_rows(const Launch& launch, const F& f, const StridedRows& g) {
  constexpr int size = Packet<typename F::T>::size;
  if (g.inner % size == 0 && rows::is_aligned(f))
    rows::run_strided<size>(launch, f, g);
  else
    rows::run_strided<1>(launch, f, g);
}
/// Only finishes rows: the Acc of row r is that of sums[r + i * rows] for i < count.
template <class F>
void finish_rows(const Launch& launch, const F& f, int64_t rows, const typename F::Acc* sums, int64_t count) {
  rows::finish(launch, f, rows, sums, count, 1, rows);
}

}  // namespace vox::cuda

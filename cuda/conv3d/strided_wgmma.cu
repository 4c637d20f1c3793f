// conv3d and conv_transpose3d with steps of 1 and 2, f32 by TF32 on Hopper's tensor cores (wgmma).
//
// Seen from the coarse grid every tap is a shift by whole cells and one of the phases of the fine grid
// (strided_plan.h). So both ops are sums of plain products
//
//   conv_transpose3d   output[phase][m, n] = bias[n] + sum over k, shifts  input[m + shift, k] * weight[k, n]
//   conv3d             output[m, n] = bias[n] + sum over k, phases, shifts  input[phase][m + shift, k] * ...
//   m: a coarse cell     n: an output channel of the group     k: an input channel
//
// and a block loads what its tile of cells reads, with its halo, once for all of them. Phases without taps
// are written with the bias: every output is written once, and no product with an inserted zero is computed.
//
// Who owns what: a block works on tiles of 2 x `tiles` x 64 cells of one image, times `slots` phases times
// `channels`, in the registers of two warpgroups of consumers. Two groups of producers fill stages in turn: 8
// channels (times k_steps) of the window, rounded, as [4 channels][depth][position][16 bytes]. That is an
// operand of wgmma without swizzle, in which every shift is a start address; conv3d's two phases along w are
// planes of their own, read in one pass so that loads coalesce. Weights come packed in the order of their
// use, once for all tiles if they fit, else with each stage. Sums go through shared memory to global memory
// as rows in which both phases along w lie one behind the other. Nothing is shared between blocks: no
// atomics, and the bits never change.
//
// Non-finite values: as implicit_gemm_mma.cu says.
//
// What holds it back are the cycles of shared memory: an instruction with n = 32 reads 2 KiB of cells for 1
// KiB of weights. The next ideas are cells in registers for all phases that share a shift, and rows written
// by the copy engine; a kernel that does the latter was made, and not run.

#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/multiprocessors.h>
#include <voxgrad/cuda/conv3d/strided_plan.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/ptx/barrier.cuh>
#include <voxgrad/cuda/ptx/mbarrier.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda {

namespace {

using ptx::Operand;

// ---- Helpers ----------------------------------------------------------------------------------------------

constexpr int consumer_threads = 256;
[[maybe_unused]] constexpr int consumer_warps = consumer_threads / 32;  // where there is no wgmma, as below
constexpr int producers = 128;  // in a group; the two groups fill stages in turn
constexpr int block_threads = consumer_threads + 2 * producers;
constexpr int batch = 5;  // positions that a producer has in flight, of 8 channels each
[[maybe_unused]] constexpr int most_stages = 8;

/// What a block works on: the tiles number blockIdx.x, blockIdx.x + gridDim.x ... of a block of channels.
struct Columns {
  int group, channel_block;
};
struct Tile {
  int image, depth, position;
};
[[maybe_unused]] __device__ __forceinline__ Tile tile_of(int number, int positions, const StridedPlan& p) {
  const int plane = number / p.plane_tiles;
  return {plane / p.depth_blocks, plane % p.depth_blocks * p.depths, number % p.plane_tiles * positions};
}

/// Where a block's rings stand.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
};
[[maybe_unused]] __device__ __forceinline__ void advance(Ring& ring, int stages) {
  if (++ring.stage == stages) ring.stage = 0, ring.parity ^= 1;
}

/// To TF32 in one multiplication: tensor cores ignore the bits below its mantissa, so what is added here
/// decides about rounding up. It is 0.35 of a step for mantissas of 1 and 0.69 for those of 2, where 0.5
/// would be to nearest; the error's mean is zero, its variance, calculated, 12 % larger. TF32 numbers stay
/// what they are, as do NaN and Inf.
__device__ __forceinline__ uint32_t rounded(float x) { return __float_as_uint(x * (1 + 0.3466f / 1024)); }

/// 8 numbers of a granule pair: rounded, in the order of shared memory.
[[maybe_unused]] __device__ __forceinline__ void store_step(unsigned char* at, int granule_bytes,
                                                            const float (&v)[8]) {
  *reinterpret_cast<uint4*>(at) = make_uint4(rounded(v[0]), rounded(v[1]), rounded(v[2]), rounded(v[3]));
  *reinterpret_cast<uint4*>(at + granule_bytes) =
      make_uint4(rounded(v[4]), rounded(v[5]), rounded(v[6]), rounded(v[7]));
}

// ---- Kernels ----------------------------------------------------------------------------------------------

/// Weights as stages want them: [group and block of channels][kind][slab][item][step of k][granule][channel]
/// [16 bytes]. blockIdx is (item, slab, group and block of channels).
template <int channels>
__global__ void __launch_bounds__(128)
    pack_kernel(const float* weight, unsigned char* packed, const __grid_constant__ StridedPlan p,
                const __grid_constant__ StridedTaps taps) {
  const int number = blockIdx.x, slab = blockIdx.y;
  const int group = blockIdx.z / p.channel_blocks, channel_block = blockIdx.z % p.channel_blocks;
  int k = 0;
  while (number >= p.kind[k].first[most_slots]) ++k;
  float* const to =
      reinterpret_cast<float*>(packed + int64_t{blockIdx.z} * p.block_weights + p.kind[k].weights +
                               int64_t{slab} * p.kind[k].stage_weights + p.item[number].weights * 16);
  const int all_taps = p.d.kernel * p.h.kernel * p.w.kernel;
  for (int i = threadIdx.x; i < p.k_steps * channels * 8; i += blockDim.x) {
    const int in = (slab * p.k_steps + i / (channels * 8)) * 8 + i / (channels * 4) % 2 * 4 + i % 4;
    const int out = channel_block * channels + i / 4 % channels;
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group) {
      // The weight is (small channels, big channels of the group, taps); conv_transpose3d reads small.
      const int64_t row = p.transposed ? (int64_t{group} * p.in_per_group + in) * p.out_per_group + out
                                       : (int64_t{group} * p.out_per_group + out) * p.in_per_group + in;
      value = weight[row * all_taps + taps.of[number]];
    }
    to[i] = __uint_as_float(ptx::to_tf32(value));
  }
}

struct Shared {
  unsigned char *stages, *weights, *staging;
  uint32_t* table;
  ptx::Mbarrier *full, *empty, *weights_here;
};

template <int channels, int slots, int tiles>
struct StridedKernel {
  static constexpr int per_row = slots > 1 ? 2 : 1, rows = slots > 1 ? slots / 2 : 1;
  static constexpr int sums = channels / 2;  // of a slot, in a thread
  static constexpr int pitch = staging_pitch(slots);

  // -- The producers: input to shared memory --

  /// For each position of a kind's window, where its input lies in a channel, in bytes; ~0 outside.
  static __device__ __forceinline__ void locate(uint32_t* table, int thread, const Tile& tile,
                                                const StridedKind& kind, const StridedPlan& p) {
    const int phases_w = p.transposed ? 1 : p.phases_w;
    const int per_plane = kind.plane * phases_w;
    // A thread's positions of a plane are `producers` apart, and so are their columns, modulo rows.
    const int step = producers / phases_w, step_rows = step / p.pitch, step_columns = step % p.pitch;
    const int phase = phases_w == 2 ? thread % 2 : 0;
    const int first = tile.position + thread / phases_w;
    const int first_row = first / p.pitch, first_column = first % p.pitch;
    const int low_w = p.low_w * p.w.in_step + (p.transposed ? 0 : p.phase_w[phase]);
    for (int plane = 0; plane < kind.planes; ++plane) {
      const int d = (tile.depth + plane + kind.low_d) * p.d.in_step + kind.phase_d;
      const bool inside_d = static_cast<unsigned>(d) < static_cast<unsigned>(p.d.in);
      int row = first_row, column = first_column;
      for (int i = thread; i < per_plane; i += producers) {
        const int h = (row + kind.low_h) * p.h.in_step + kind.phase_h, w = column * p.w.in_step + low_w;
        const bool inside = inside_d && static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in) &&
                            static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in);
        table[plane * per_plane + i] =
            inside ? static_cast<uint32_t>((d * p.h.in + h) * p.w.in + w) * 4 : ~0u;
        row += step_rows;
        column += step_columns;
        if (column >= p.pitch) column -= p.pitch, ++row;
      }
    }
  }

  /// Loads 8 channels from `from` on, at up to `batch` positions; zeros where there is none.
  template <bool all>
  static __device__ __forceinline__ void load(float (&v)[batch][8], const uint32_t (&offset)[batch],
                                              const char* from, int64_t channel_bytes, int left) {
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const char* at = from + offset[u];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        v[u][c] = offset[u] != ~0u && (all || c < left) ? __ldg(reinterpret_cast<const float*>(at)) : 0.0f;
        at += channel_bytes;
      }
    }
  }

  static __device__ __forceinline__ void produce(const float* __restrict__ input,
                                                 const unsigned char* __restrict__ packed,
                                                 const Columns& columns, const Shared& shared,
                                                 int producer_group, const StridedPlan& p) {
    const int thread = threadIdx.x % producers;
    const int positions = 128 * tiles / p.depths;
    const int phases_w = p.transposed ? 1 : p.phases_w;
    const unsigned char* const weights =
        packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.block_weights;
    uint32_t* const table = shared.table + producer_group * (p.table_bytes / 8);
    const int64_t channel_bytes = int64_t{p.in_channel} * 4;
    const int round_positions = producers / phases_w;
    Ring ring;
    int turn = 0;
    if (thread == 0 && producer_group == 0 && p.weight_bytes) {
      ptx::mbarrier_arrive_expecting(*shared.weights_here, p.weight_bytes);
      ptx::bulk_copy(shared.weights, weights, p.weight_bytes, *shared.weights_here);
    }
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
      const Tile tile = tile_of(number, positions, p);
      const char* const image = reinterpret_cast<const char*>(
          input + (int64_t{tile.image} * p.groups + columns.group) * p.in_per_group * p.in_channel);
      for (int k = 0; k < p.kinds; ++k) {
        const StridedKind& kind = p.kind[k];
        if (kind.stage_weights == 0) continue;
        const int count = kind.planes * kind.plane * phases_w;
        const int own_position = phases_w == 2 ? thread % 2 * kind.phase_pitch + thread / 2 : thread;
        const int granule_bytes = kind.granule_pitch * 16;
        bool located = false;
        for (int slab = 0; slab < p.slabs; ++slab, advance(ring, p.stages), turn ^= 1) {
          if (turn != producer_group) continue;
          if (!located) {
            ptx::named_barrier<producers>(3 + producer_group);  // the table has been read
            locate(table, thread, tile, kind, p);
            ptx::named_barrier<producers>(3 + producer_group);
            located = true;
          }
          unsigned char* const stage = shared.stages + ring.stage * p.stage_bytes;
          bool waited = false;
          for (int step = 0; step < p.k_steps; ++step) {
            const int channel = (slab * p.k_steps + step) * 8, left = p.in_per_group - channel;
            const char* const from = image + channel * channel_bytes;
            unsigned char* to = stage + step * 2 * granule_bytes + own_position * 16;
            for (int first = thread; first < count; first += batch * producers) {
              uint32_t offset[batch];
              float v[batch][8];
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const int i = first + u * producers;
                offset[u] = i < count ? table[i] : ~0u;
              }
              if (left >= 8)
                load<true>(v, offset, from, channel_bytes, left);
              else
                load<false>(v, offset, from, channel_bytes, left);
              if (!waited) {
                ptx::mbarrier_wait(shared.empty[ring.stage], ring.parity ^ 1);
                waited = true;
                if (thread == 0 && !p.weight_bytes) {
                  ptx::mbarrier_arrive_expecting(shared.full[ring.stage], kind.stage_weights);
                  ptx::bulk_copy(stage + p.k_steps * 2 * granule_bytes,
                                 weights + kind.weights + int64_t{slab} * kind.stage_weights,
                                 kind.stage_weights, shared.full[ring.stage]);
                }
              }
#pragma unroll
              for (int u = 0; u < batch; ++u)
                if (first + u * producers < count)
                  store_step(to + u * round_positions * 16, granule_bytes, v[u]);
              to += batch * round_positions * 16;
            }
          }
          __syncwarp();
          if (thread % 32 == 0) ptx::mbarrier_arrive(shared.full[ring.stage]);
        }
      }
    }
  }

  // -- The consumers: products, and output --

  /// The products of one stage, of which all have been seen off when it returns.
  static __device__ __forceinline__ void multiply(float (&sum)[tiles][slots * sums],
                                                  const unsigned char* stage, const unsigned char* weights,
                                                  int first_position, const StridedKind& kind,
                                                  const StridedPlan& p) {
    const int granule = kind.granule_pitch * 16;
    const uint64_t a0 = ptx::shared_matrix(stage + first_position * 16, granule, 128);
    const uint64_t b0 = ptx::shared_matrix(weights, channels * 16, 128);
    // The lower halves hold the addresses, in units of 16 bytes.
    const uint64_t a_high = a0 >> 32 << 32, b_high = b0 >> 32 << 32;
    uint32_t a_low = static_cast<uint32_t>(a0), b_low = static_cast<uint32_t>(b0);
    ptx::wgmma_fence();
    for (int step = 0; step < p.k_steps; ++step) {
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) {
        const int last = kind.first[slot + 1];
#pragma unroll 2
        for (int i = kind.first[slot]; i < last; ++i) {
          const uint32_t a = a_low + p.item[i].position, b = b_low + p.item[i].weights;
#pragma unroll
          for (int t = 0; t < tiles; ++t)
            ptx::wgmma<Operand::tf32, channels>(sum[t] + slot * sums, a_high | (a + t * 64), b_high | b);
        }
      }
      a_low += granule / 8;
      b_low += channels * 2;
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
  }

  /// Where a lane's elements x = lane, lane + 32 ... of a span of 64 cells go, in one channel at phases (0,
  /// 0) along d and h.
  struct Span {
    bool straight;       // one row: elements lie one behind the other
    uint32_t offset[4];  // bytes; only the first if straight
    uint32_t exists;     // bit 4 i + 2 d + h: at phases (d, h)
  };
  static __device__ __forceinline__ Span span_of(int d, int position, const StridedPlan& p) {
    Span s;
    s.exists = 0;
    const int lane = threadIdx.x % 32, elements = 64 * p.w.out_step;
    const int first_row = position / p.pitch, first_column = position % p.pitch;
    s.straight = first_column + 64 <= p.pitch;
    const int left_d = p.d.out - d * p.d.out_step;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int x = lane + 32 * i;
      const int cell = p.w.out_step == 2 ? x / 2 : x, phase = p.w.out_step == 2 ? x % 2 : 0;
      int row = first_row, column = first_column + cell;
      if (!s.straight) row += column / p.pitch, column %= p.pitch;
      const int w = column * p.w.out_step + phase, left_h = p.h.out - row * p.h.out_step;
      s.offset[i] =
          static_cast<uint32_t>((d * p.d.out_step * p.h.out + row * p.h.out_step) * p.w.out + w) * 4;
      if (x < elements && left_d > 0 && left_h > 0 && column < p.w.cells && w < p.w.out)
        s.exists |= (1 | (left_h > 1) << 1 | (left_d > 1) << 2 | (left_d > 1 && left_h > 1) << 3) << 4 * i;
    }
    return s;
  }

  /// Sums of one pair of phases to [channel][cell][phase along w].
  template <int r>
  static __device__ __forceinline__ void stage_row(const float (&sum)[slots * sums], float* staging) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    float* const at = staging + lane % 4 * 2 * pitch + (warp * 16 + lane / 4) * per_row;
#pragma unroll
    for (int j = 0; j < sums / 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float* const cell = at + (j * 8 + e % 2) * pitch + e / 2 * 8 * per_row;
        if constexpr (per_row == 2)
          *reinterpret_cast<float2*>(cell) =
              make_float2(sum[(r * 2) * sums + j * 4 + e], sum[(r * 2 + 1) * sums + j * 4 + e]);
        else
          *cell = sum[j * 4 + e];
      }
  }

  /// Stages sums of pair `number` % rows of phases and of tile `number` / rows.
  template <int... numbers>
  static __device__ __forceinline__ void stage(const float (&sum)[tiles][slots * sums], float* staging,
                                               int number, std::integer_sequence<int, numbers...>) {
    ((number == numbers ? stage_row<numbers % rows>(sum[numbers / rows], staging) : void()), ...);
  }

  /// What the elements of a span are: sums of all phases along w, of one of two, or the bias alone.
  enum class Source { all, one, bias };

  /// Writes `count` channels of a span, every fourth from `channel` on. `staged` and `bias` are those of the
  /// first in shared memory.
  template <Source source, bool straight>
  static __device__ __forceinline__ void copy(const unsigned char* memory, int staged, int bias,
                                              const Span& span, int shift, char* channel,
                                              int64_t channel_bytes, int count, const StridedPlan& p) {
    constexpr int elements = source == Source::all ? 2 * per_row : 4;
    const int lane = threadIdx.x % 32;
    bool wanted[elements];
    char* to[elements];
#pragma unroll
    for (int i = 0; i < elements; ++i) {
      wanted[i] = span.exists >> (4 * i + shift) & 1;
      to[i] = channel + span.offset[straight ? 0 : i];
    }
    // Where each comes from, and the distances to the next element and to the next channel.
    int from = bias, next = 0, next_channel = 16;
    if constexpr (source == Source::all) from = staged + lane * 4, next = 128, next_channel = 4 * pitch * 4;
    if constexpr (source == Source::one) {
      const int cell = p.w.out_step == 2 ? lane / 2 : lane;
      if (p.w.out_step == 1 || lane % 2 == p.phase_w[0])
        from = staged + cell * per_row * 4, next = 128 * per_row / p.w.out_step, next_channel = 4 * pitch * 4;
    }
    const auto value = [&](int i) {
      if constexpr (source == Source::all) return *reinterpret_cast<const float*>(memory + from + i * 128);
      return *reinterpret_cast<const float*>(memory + from + (i < 2 || p.w.out_step == 2 ? i * next : 0));
    };
#pragma unroll 1
    for (int k = 0; k < count; k += 2) {  // two at a time, so that loads overlap
      float v[2][elements];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int i = 0; i < elements; ++i) v[c][i] = source == Source::bias && i > 0 ? v[c][0] : value(i);
        from += next_channel;
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (c == 1 && k + 1 == count) break;
#pragma unroll
        for (int i = 0; i < elements; ++i)
          if (wanted[i]) *reinterpret_cast<float*>(straight ? to[0] + 128 * i : to[i]) = v[c][i];
#pragma unroll
        for (int i = 0; i < (straight ? 1 : elements); ++i) to[i] += channel_bytes;
      }
    }
  }

  static __device__ __forceinline__ void write(const float (&sum)[tiles][slots * sums], unsigned char* memory,
                                               int staging, int bias, const Tile& tile,
                                               const Columns& columns, int row_block, int warpgroup, int warp,
                                               float* __restrict__ output, const StridedPlan& p) {
    const int64_t channel_bytes = int64_t{p.out_channel} * 16;  // to the next one of the warp
    const int channel0 = columns.channel_block * channels;
    const int count = (min(channels, p.out_per_group - channel0) - warp + 3) / 4;
    float* const to = output + (int64_t{tile.image} * p.groups * p.out_per_group +
                                columns.group * p.out_per_group + channel0 + warp) *
                                   p.out_channel;
    const int first_row = row_block * rows, alive_rows = min(rows, p.rows - first_row);
    const bool all = p.w.out_step == per_row && (!p.transposed || p.phases_w == per_row);
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      const int depth = p.depths == 2 ? warpgroup : 0;
      const int position = tile.position + (p.depths == 2 ? 0 : warpgroup * tiles * 64) + t * 64;
      const Span span = span_of(tile.depth + depth, position, p);
      const auto copy_row = [&]<Source source>(std::integral_constant<Source, source>, const PhasePair& row) {
        char* const channel = reinterpret_cast<char*>(to + (int64_t{row.d} * p.h.out + row.h) * p.w.out);
        const int staged = staging + warp * pitch * 4, shift = 2 * row.d + row.h;
        if (span.straight)
          copy<source, true>(memory, staged, bias + warp * 4, span, shift, channel, channel_bytes, count, p);
        else
          copy<source, false>(memory, staged, bias + warp * 4, span, shift, channel, channel_bytes, count, p);
      };
      // Pairs of phases: those of this block that are alive, and its share of the others.
#pragma unroll 1
      for (int r = 0; r < alive_rows; ++r) {
        ptx::named_barrier<128>(1 + warpgroup);  // what was staged before has been read
        stage(sum, reinterpret_cast<float*>(memory + staging), t * rows + r,
              std::make_integer_sequence<int, tiles * rows>{});
        ptx::named_barrier<128>(1 + warpgroup);
        if (all)
          copy_row(std::integral_constant<Source, Source::all>{}, p.row[first_row + r]);
        else
          copy_row(std::integral_constant<Source, Source::one>{}, p.row[first_row + r]);
      }
#pragma unroll 1
      for (int r = row_block; r < p.dead_rows; r += p.row_blocks)
        copy_row(std::integral_constant<Source, Source::bias>{}, p.row[p.rows + r]);
    }
  }

  static __device__ __forceinline__ void consume(const Columns& columns, unsigned char* memory,
                                                 const Shared& shared, int warpgroup,
                                                 const float* __restrict__ bias, float* __restrict__ output,
                                                 const StridedPlan& p) {
    const int positions = 128 * tiles / p.depths;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    // Behind the staging of both warpgroups: the bias of the block's channels, and zeros.
    const int all_staging = static_cast<int>(shared.staging - memory);
    const int staging = all_staging + warpgroup * channels * pitch * 4,
              bias_at = all_staging + 2 * channels * pitch * 4;
    for (int c = threadIdx.x; c < channels + 8; c += consumer_threads) {
      const int in_group = columns.channel_block * channels + c;
      const bool exists = bias && c < channels && in_group < p.out_per_group;
      reinterpret_cast<float*>(memory + bias_at)[c] =
          exists ? bias[columns.group * p.out_per_group + in_group] : 0.0f;
    }
    ptx::named_barrier<consumer_threads>(5);
    Ring ring;
    if (p.weight_bytes) ptx::mbarrier_wait(*shared.weights_here, 0);
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
      const Tile tile = tile_of(number, positions, p);
      for (int row_block = 0; row_block < p.row_blocks; ++row_block) {
        float sum[tiles][slots * sums];
        const float* const pair_bias = reinterpret_cast<const float*>(memory + bias_at) + threadIdx.x % 4 * 2;
#pragma unroll
        for (int j = 0; j < sums / 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float first = pair_bias[j * 8 + e];
#pragma unroll
            for (int t = 0; t < tiles; ++t)
#pragma unroll
              for (int slot = 0; slot < slots; ++slot)
                sum[t][slot * sums + j * 4 + e] = sum[t][slot * sums + j * 4 + 2 + e] = first;
          }
        // conv_transpose3d has a kind for each block of rows; conv3d one block, and all kinds in it.
        const int first_kind = p.transposed ? row_block : 0, kinds = p.transposed ? 1 : p.kinds;
        for (int k = first_kind; k < first_kind + kinds; ++k) {
          const StridedKind& kind = p.kind[k];
          if (kind.stage_weights == 0) continue;
          const int first_position = p.depths == 2 ? warpgroup * kind.plane : warpgroup * tiles * 64;
          for (int slab = 0; slab < p.slabs; ++slab) {
            const unsigned char* const stage = shared.stages + ring.stage * p.stage_bytes;
            const unsigned char* const weights =
                p.weight_bytes ? shared.weights + kind.weights + slab * kind.stage_weights
                               : stage + p.k_steps * kind.granule_pitch * 32;
            ptx::mbarrier_wait(shared.full[ring.stage], ring.parity);
            // For the producers' stores: they would have to wait for all of their loads.
            ptx::fence_proxy_async();
            multiply(sum, stage, weights, first_position, kind, p);
            if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.empty[ring.stage]);
            advance(ring, p.stages);
          }
        }
        write(sum, memory, staging, bias_at, tile, columns, row_block, warpgroup, warp, output, p);
      }
    }
  }
};

template <int channels, int slots, int tiles>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const float* __restrict__ input, const unsigned char* __restrict__ packed,
                   const float* __restrict__ bias, float* __restrict__ output,
                   const __grid_constant__ StridedPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Kernel = StridedKernel<channels, slots, tiles>;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ ptx::Mbarrier full[most_stages], empty[most_stages], weights_here;
  Shared shared{memory, nullptr, nullptr, nullptr, full, empty, &weights_here};
  shared.weights = shared.stages + p.stages * p.stage_bytes;
  shared.table = reinterpret_cast<uint32_t*>(shared.weights + p.weight_bytes);
  shared.staging = shared.weights + p.weight_bytes + p.table_bytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], producers / 32 + (p.weight_bytes ? 0 : 1));
      ptx::mbarrier_init(empty[i], consumer_warps);
    }
    ptx::mbarrier_init(weights_here, 1);
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  const Columns columns{static_cast<int>(blockIdx.y) / p.channel_blocks,
                        static_cast<int>(blockIdx.y) % p.channel_blocks};
  // From lane 0, so that the compiler knows that warps do not part here.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup >= 2) {
    ptx::shrink_registers_to<88>();
    Kernel::produce(input, packed, columns, shared, warpgroup - 2, p);
  } else {
    ptx::grow_registers_to<168>();
    Kernel::consume(columns, memory, shared, warpgroup, bias, output, p);
  }
#endif
}

// ---- Launchers --------------------------------------------------------------------------------------------

/// Calls `f` with the tile's numbers as constants.
template <class F>
void visit_tile(const StridedTile& t, F f) {
  const auto with = [&](auto channels, auto slots, auto tiles) {
    if (t.channels == channels && t.slots == slots && t.tiles == tiles) f(channels, slots, tiles);
  };
  using std::integral_constant;
  const auto one = [&]<int c, int s, int n>(std::integer_sequence<int, c, s, n>) {
    with(integral_constant<int, c>{}, integral_constant<int, s>{}, integral_constant<int, n>{});
  };
  one(std::integer_sequence<int, 8, 1, 4>{});
  one(std::integer_sequence<int, 16, 1, 4>{});
  one(std::integer_sequence<int, 32, 1, 4>{});
  one(std::integer_sequence<int, 48, 1, 2>{});
  one(std::integer_sequence<int, 64, 1, 2>{});
  one(std::integer_sequence<int, 8, 8, 4>{});
  one(std::integer_sequence<int, 16, 8, 2>{});
  one(std::integer_sequence<int, 32, 4, 2>{});
  one(std::integer_sequence<int, 48, 2, 2>{});
  one(std::integer_sequence<int, 64, 2, 2>{});
}

void strided(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
             const Conv3dGeometry& g, bool transposed) {
  if (g.batch == 0) return;
  const StridedTile tile = strided_tile(g, transposed);
  const auto planned = strided_plan(g, transposed, tile);
  const StridedPlan& p = planned->plan;
  visit_tile(tile, [&](auto channels, auto slots, auto tiles) {
    const int64_t blocks = int64_t{p.groups} * p.channel_blocks;
    const Launch launch(op, output, {&input, &weight, &bias});
    const Workspace packed(launch, blocks * p.block_weights);
    auto* const to = packed.as<unsigned char>();
    const int last = p.kinds - 1;
    const int items = last < 0 ? 0 : p.kind[last].first[most_slots];
    if (items > 0)
      pack_kernel<channels><<<dim3(static_cast<unsigned>(items), static_cast<unsigned>(p.slabs),
                                   static_cast<unsigned>(blocks)),
                              128, 0, launch.stream()>>>(detail::ptr<float>(weight), to, p, planned->taps);
    const auto kernel = product_kernel<channels, slots, tiles>;
    launch.allow_shared_memory<product_kernel<channels, slots, tiles>>(p.shared_bytes);
    const int columns = p.groups * p.channel_blocks;
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    const int in_parallel = std::clamp(multiprocessors(launch) / columns, 1, all_tiles);
    kernel<<<dim3(static_cast<unsigned>(in_parallel), static_cast<unsigned>(columns)), block_threads,
             p.shared_bytes, launch.stream()>>>(detail::ptr<float>(input), to,
                                                bias.defined() ? detail::ptr<float>(bias) : nullptr,
                                                detail::mutable_ptr<float>(output), p);
    launch.check();
  });
}

}  // namespace

bool strided_wgmma_takes(const Conv3dGeometry& g, bool transposed) {
  return strided_plan(g, transposed, strided_tile(g, transposed)).has_value();
}

void conv3d_strided_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                          Conv3dGeometry g) {
  strided("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_strided_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                    Tensor& big, Conv3dGeometry g) {
  strided("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda

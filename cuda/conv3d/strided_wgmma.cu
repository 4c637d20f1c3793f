#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/kernels.h>
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

constexpr int consumer_threads = 256, consumer_warps = consumer_threads / 32;
constexpr int producers = 128;  // in a group; the two groups fill stages in turn
constexpr int block_threads = consumer_threads + 2 * producers;
constexpr int batch = 5;  // positions that a producer has in flight, of 8 channels each
constexpr int most_stages = 8;

template <Operand operand>
constexpr int step_channels = operand == Operand::tf32 ? 8 : 16;

/// What a block works on: the tiles number blockIdx.x, blockIdx.x + gridDim.x ... of a block of channels.
struct Columns {
  int group, channel_block;
};
struct Tile {
  int image, depth, position;
};
__device__ __forceinline__ Tile tile_of(int number, int positions, const StridedPlan& p) {
  const int plane = number / p.plane_tiles;
  return {plane / p.depth_blocks, plane % p.depth_blocks * p.depths, number % p.plane_tiles * positions};
}

/// Where a block's rings stand.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// To TF32 in one multiplication: tensor cores ignore the bits below its mantissa, so what is added here
/// decides about rounding up. It is 0.35 of a step for mantissas of 1 and 0.69 for those of 2, where 0.5
/// would be to nearest; the error's mean is zero, its variance 12 % larger. TF32 numbers stay what they are,
/// as do NaN and Inf.
__device__ __forceinline__ uint32_t rounded(float x) { return __float_as_uint(x * (1 + 0.3466f / 1024)); }

/// 8 numbers of a granule pair: rounded, in the order of shared memory.
__device__ __forceinline__ void store_step(unsigned char* at, int granule_bytes, const float (&v)[8]) {
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
                                              int rounds, const char* from, int64_t channel_bytes, int left) {
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      if (u >= rounds) break;
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
    const int positions = 128 * tiles / p.teams / p.depths;
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
    const int team = p.teams == 2 ? producer_group : 0;
    unsigned char* const ring_start = shared.stages + team * p.stages * p.stage_bytes;
    ptx::Mbarrier* const full = shared.full + team * most_stages;
    ptx::Mbarrier* const empty = shared.empty + team * most_stages;
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    for (int number = blockIdx.x * p.teams + team; number < all_tiles; number += gridDim.x * p.teams) {
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
        for (int slab = 0; slab < p.slabs; ++slab, ring.advance(p.stages), turn ^= 1) {
          if (p.teams == 1 && turn != producer_group) continue;
          if (!located) {
            ptx::named_barrier<producers>(3 + producer_group);  // the table has been read
            locate(table, thread, tile, kind, p);
            ptx::named_barrier<producers>(3 + producer_group);
            located = true;
          }
          unsigned char* const stage = ring_start + ring.stage * p.stage_bytes;
          bool waited = false;
          for (int step = 0; step < p.k_steps; ++step) {
            const int channel = (slab * p.k_steps + step) * 8, left = p.in_per_group - channel;
            const char* const from = image + channel * channel_bytes;
            unsigned char* to = stage + step * 2 * granule_bytes + own_position * 16;
            for (int first = thread; first - thread < count; first += batch * producers) {
              const int rounds = (count - (first - thread) + producers - 1) / producers;
              uint32_t offset[batch];
              float v[batch][8];
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const int i = first + u * producers;
                offset[u] = i < count ? table[i] : ~0u;
              }
              if (left >= 8)
                load<true>(v, offset, rounds, from, channel_bytes, left);
              else
                load<false>(v, offset, rounds, from, channel_bytes, left);
              if (!waited) {
                ptx::mbarrier_wait(empty[ring.stage], ring.parity ^ 1);
                waited = true;
                if (thread == 0 && !p.weight_bytes) {
                  ptx::mbarrier_arrive_expecting(full[ring.stage], kind.stage_weights);
                  ptx::bulk_copy(stage + p.k_steps * 2 * granule_bytes,
                                 weights + kind.weights + int64_t{slab} * kind.stage_weights,
                                 kind.stage_weights, full[ring.stage]);
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
          if (thread % 32 == 0) ptx::mbarrier_arrive(full[ring.stage]);
        }
      }
    }
  }

  // -- The consumers: products, and output --

  /// The products of one stage, of which all have been seen off when it returns.
  static __device__ __forceinline__ void multiply(float (&sum)[tiles][slots * sums],
                                                  const unsigned char* stage, const unsigned char* weights,
                                                  int first_position, int jump, const StridedKind& kind,
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
#pragma unroll 1
        for (int i = kind.first[slot]; i < last; ++i) {
          const uint32_t a = a_low + p.item[i].position, b = b_low + p.item[i].weights;
#pragma unroll
          for (int t = 0; t < tiles; ++t)
            ptx::wgmma<Operand::tf32, channels>(
                sum[t] + slot * sums, a_high | (a + t * 64 + (t >= tiles / 2 ? jump : 0)), b_high | b);
        }
      }
      a_low += granule / 8;
      b_low += channels * 2;
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
  }

  /// Sums of one pair of phases to [channel][cell][phase along w], where a thread's two channels of 8 begin
  /// with `shift` unused words.
  template <int r>
  static __device__ __forceinline__ void stage_row(const float (&sum)[slots * sums], float* staging,
                                                   const int (&shift)[2]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float* const at = staging + (lane % 4 * 2 + e) * pitch + (warp * 16 + lane / 4) * per_row + shift[e];
#pragma unroll
      for (int j = 0; j < sums / 4; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int i = 0; i < per_row; ++i)
            at[j * 8 * pitch + half * 8 * per_row + i] = sum[(r * per_row + i) * sums + j * 4 + half * 2 + e];
    }
  }

  /// Stages sums of pair `number` % rows of phases and of tile `number` / rows.
  template <int... numbers>
  static __device__ __forceinline__ void stage(const float (&sum)[tiles][slots * sums], float* staging,
                                               const int (&shift)[2], int number,
                                               std::integer_sequence<int, numbers...>) {
    ((number == numbers ? stage_row<numbers % rows>(sum[numbers / rows], staging, shift) : void()), ...);
  }

  /// Where the outputs of some neighbouring cells come from: staged sums of all phases along w, of one of
  /// two, or the bias alone.
  enum class Source { all, one, bias };

  /// Writes `length` outputs that lie one behind the other, of `count` channels, every fourth from `channel`
  /// on, whole lines of 128 bytes at a time. `staged` and `bias` are those of the first in shared memory.
  template <Source source>
  static __device__ __forceinline__ void copy(const unsigned char* memory, int staged, int bias, int length,
                                              char* channel, int64_t channel_bytes, int count,
                                              const StridedPlan& p) {
    const int lane = threadIdx.x % 32;
    const int chunks = (length + 62) / 32;
#pragma unroll 1
    for (int k = 0; k < count; k += 2) {  // two at a time, so that loads overlap
      float v[2][5];
      int x[2];
      char* to[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        x[c] = lane - static_cast<int>(reinterpret_cast<uintptr_t>(channel) >> 2 & 31);
        to[c] = channel + x[c] * 4;
        channel += channel_bytes;
        const float first = source == Source::all ? 0 : *reinterpret_cast<const float*>(memory + bias);
        const bool alive = source == Source::one && (p.w.out_step == 1 || (x[c] & 1) == p.phase_w[0]);
#pragma unroll
        for (int i = 0; i < 5; ++i) {
          const int at = x[c] + 32 * i;
          const bool exists = static_cast<unsigned>(at) < static_cast<unsigned>(length);
          v[c][i] = first;
          if (source == Source::all && exists)
            v[c][i] = *reinterpret_cast<const float*>(memory + staged + at * 4);
          if (source == Source::one && exists && alive)
            v[c][i] =
                *reinterpret_cast<const float*>(memory + staged + (at >> (p.w.out_step - 1)) * per_row * 4);
        }
        staged += 4 * pitch * 4;
        bias += 16;
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (c == 1 && k + 1 == count) break;
#pragma unroll
        for (int i = 0; i < 5; ++i)
          if (i < chunks && static_cast<unsigned>(x[c] + 32 * i) < static_cast<unsigned>(length))
            *reinterpret_cast<float*>(to[c] + 128 * i) = v[c][i];
      }
    }
  }

  /// The same in vectors of 16 bytes: `staged` begins with as many unused words as `channel` is beyond a
  /// multiple of 16 bytes, which is the same for every fourth channel. `whole`: sums, else the bias.
  template <bool whole>
  static __device__ __forceinline__ void copy_vectors(const unsigned char* memory, int staged, int bias,
                                                      int length, char* channel, int64_t channel_bytes,
                                                      int count) {
    const int lane = threadIdx.x % 32;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(channel) >> 2 & 3), end = shift + length;
    const bool vector = 4 * lane >= shift && 4 * lane + 4 <= end;
    // What is left at both ends: words of the first vector and of the last.
    const int word = lane < 4 ? lane : (end & ~3) + lane - 4;
    const bool single =
        lane < 4 ? lane >= shift && lane < end && (shift > 0 || end < 4) : lane < 8 && end >= 4 && word < end;
    char* to_vector = channel + (4 * lane - shift) * 4;
    char* to_word = channel + (word - shift) * 4;
    int from_vector = staged + lane * 16, from_word = staged + word * 4;
#pragma unroll 2
    for (int k = 0; k < count; ++k) {
      float4 v{};
      float one = 0;
      if constexpr (whole) {
        if (vector) v = *reinterpret_cast<const float4*>(memory + from_vector);
        if (single) one = *reinterpret_cast<const float*>(memory + from_word);
        from_vector += 4 * pitch * 4;
        from_word += 4 * pitch * 4;
      } else {
        one = *reinterpret_cast<const float*>(memory + bias);
        v = make_float4(one, one, one, one);
        bias += 16;
      }
      if (vector) *reinterpret_cast<float4*>(to_vector) = v;
      if (single) *reinterpret_cast<float*>(to_word) = one;
      to_vector += channel_bytes;
      to_word += channel_bytes;
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
    const int per_depth = 2 * tiles / p.teams / p.depths;  // tiles of 64 cells
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      const int block = (p.teams == 1 ? warpgroup * tiles : 0) + t;
      const int d = (tile.depth + block / per_depth) * p.d.out_step;
      const int position = tile.position + block % per_depth * 64;
      const bool straight = position % p.pitch + 64 <= p.pitch;
      // The cells of the tile, row by row.
      const auto copy_row = [&]<Source source>(std::integral_constant<Source, source>,
                                               const PhasePair& pair) {
        int row = position / p.pitch, column = position % p.pitch;
        for (int cell = 0; cell < 64; ++row, column = 0) {
          const int h = row * p.h.out_step + pair.h, w = column * p.w.out_step;
          const int cells = min(64 - cell, p.pitch - column);
          const int length = min(min(cells, p.w.cells - column) * p.w.out_step, p.w.out - w);
          if (d + pair.d < p.d.out && h < p.h.out && length > 0) {
            char* const channel =
                reinterpret_cast<char*>(to + (int64_t{d + pair.d} * p.h.out + h) * p.w.out + w);
            const int staged = staging + warp * pitch * 4 + cell * per_row * 4;
            if (source == Source::bias)
              copy_vectors<false>(memory, 0, bias + warp * 4, length, channel, channel_bytes, count);
            else if (source == Source::all && straight)
              copy_vectors<true>(memory, staged, 0, length, channel, channel_bytes, count);
            else
              copy<source>(memory, staged, bias + warp * 4, length, channel, channel_bytes, count, p);
          }
          cell += cells;
        }
      };
      // Pairs of phases: those of this block that are alive, and its share of the others.
#pragma unroll 1
      for (int r = 0; r < alive_rows; ++r) {
        const PhasePair& pair = p.row[first_row + r];
        int shift[2] = {0, 0};
        if (all && straight) {
          const int64_t start =
              (reinterpret_cast<intptr_t>(to) >> 2) - int64_t{warp} * p.out_channel +
              (int64_t{d + pair.d} * p.h.out + position / p.pitch * p.h.out_step + pair.h) * p.w.out +
              position % p.pitch * p.w.out_step;
#pragma unroll
          for (int e = 0; e < 2; ++e)
            shift[e] =
                static_cast<int>(start + int64_t{static_cast<int>(threadIdx.x % 4 * 2) + e} * p.out_channel) &
                3;
        }
        ptx::named_barrier<128>(1 + warpgroup);  // what was staged before has been read
        stage(sum, reinterpret_cast<float*>(memory + staging), shift, t * rows + r,
              std::make_integer_sequence<int, tiles * rows>{});
        ptx::named_barrier<128>(1 + warpgroup);
        if (all)
          copy_row(std::integral_constant<Source, Source::all>{}, pair);
        else
          copy_row(std::integral_constant<Source, Source::one>{}, pair);
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
    const int positions = 128 * tiles / p.teams / p.depths;
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
    const int team = p.teams == 2 ? warpgroup : 0;
    const unsigned char* const ring_start = shared.stages + team * p.stages * p.stage_bytes;
    ptx::Mbarrier* const full = shared.full + team * most_stages;
    ptx::Mbarrier* const empty = shared.empty + team * most_stages;
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    const int step = gridDim.x * p.teams;
    for (int number = blockIdx.x * p.teams + team; number < all_tiles; number += step) {
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
          const bool half = p.teams == 2 && p.depths == 2;  // each depth has half of the tiles of a warpgroup
          const int jump = half ? kind.plane - tiles / 2 * 64 : 0;
          const int first_position = p.teams == 2    ? 0
                                     : p.depths == 2 ? warpgroup * kind.plane
                                                     : warpgroup * tiles * 64;
          for (int slab = 0; slab < p.slabs; ++slab) {
            const unsigned char* const stage = ring_start + ring.stage * p.stage_bytes;
            const unsigned char* const weights =
                p.weight_bytes ? shared.weights + kind.weights + slab * kind.stage_weights
                               : stage + p.k_steps * kind.granule_pitch * 32;
            ptx::mbarrier_wait(full[ring.stage], ring.parity);
            // For the producers' stores: they would have to wait for all of their loads.
            ptx::fence_proxy_async();
            multiply(sum, stage, weights, first_position, jump, kind, p);
            if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty[ring.stage]);
            ring.advance(p.stages);
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
  __shared__ ptx::Mbarrier full[2 * most_stages], empty[2 * most_stages], weights_here;
  Shared shared{memory, nullptr, nullptr, nullptr, full, empty, &weights_here};
  shared.weights = shared.stages + p.teams * p.stages * p.stage_bytes;
  shared.table = reinterpret_cast<uint32_t*>(shared.weights + p.weight_bytes);
  shared.staging = shared.weights + p.weight_bytes + p.table_bytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * most_stages; ++i) {
      ptx::mbarrier_init(full[i], producers / 32 + (p.weight_bytes ? 0 : 1));
      ptx::mbarrier_init(empty[i], consumer_warps / p.teams);
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
  one(std::integer_sequence<int, 8, 1, 2>{});
  one(std::integer_sequence<int, 16, 1, 2>{});
  one(std::integer_sequence<int, 32, 1, 2>{});
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

int multiprocessors() {
  int device = 0, count = 0;
  check_cuda("conv3d", cudaGetDevice(&device));
  check_cuda("conv3d", cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

void strided(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
             const Conv3dGeometry& g, bool transposed) {
  if (g.batch == 0) return;
  const StridedTile tile = strided_tile(g, transposed, step_channels<Operand::tf32>);
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
    const int in_parallel = std::clamp(multiprocessors() / columns, 1, (all_tiles + p.teams - 1) / p.teams);
    kernel<<<dim3(static_cast<unsigned>(in_parallel), static_cast<unsigned>(columns)), block_threads,
             p.shared_bytes, launch.stream()>>>(detail::ptr<float>(input), to,
                                                bias.defined() ? detail::ptr<float>(bias) : nullptr,
                                                detail::mutable_ptr<float>(output), p);
    launch.check();
  });
}

}  // namespace

bool strided_wgmma_takes(const Conv3dGeometry& g, bool transposed) {
  return strided_plan(g, transposed, strided_tile(g, transposed, step_channels<Operand::tf32>)).has_value();
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

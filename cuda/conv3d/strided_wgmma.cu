#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/strided_plan.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/ptx/barrier.cuh>
#include <voxgrad/cuda/ptx/mbarrier.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>

namespace vox::cuda {

namespace {

using ptx::Operand;

// ---- Helpers ----------------------------------------------------------------------------------------------

constexpr int consumer_threads = 256, producer_threads = 128;
constexpr int producer_warps = producer_threads / 32, consumer_warps = consumer_threads / 32;
constexpr int block_threads = consumer_threads + producer_threads;
constexpr int most_stages = 8;

template <Operand operand>
constexpr int step_channels = operand == Operand::tf32 ? 8 : 16;

/// What a block works on: one block of columns, for every gridDim.x-th tile.
struct Columns {
  int group, channel_block, row_block;
};
__device__ __forceinline__ Columns columns_of(int number, const StridedPlan& p) {
  return {number / p.row_blocks / p.channel_blocks, number / p.row_blocks % p.channel_blocks,
          number % p.row_blocks};
}
struct Tile {
  int image, depth, position;
};
__device__ __forceinline__ Tile tile_of(int number, int positions, const StridedPlan& p) {
  const int plane = number / p.plane_tiles;
  return {plane / p.depth_blocks, plane % p.depth_blocks * p.depths, number % p.plane_tiles * positions};
}

/// The tap that is this shift seen from this phase, or -1.
__device__ __forceinline__ int tap_of(const StridedAxis& a, bool transposed, int phase, int shift) {
  const int distance = phase + a.padding + (transposed ? -shift : shift) * a.stride;
  return distance >= 0 && distance % a.dilation == 0 && distance / a.dilation < a.kernel
             ? distance / a.dilation
             : -1;
}

/// Where a block's rings stand.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// 8 numbers of a granule pair: rounded, in the order of shared memory.
__device__ __forceinline__ void store_step(unsigned char* at, int granule_bytes, const float (&v)[8]) {
  *reinterpret_cast<uint4*>(at) =
      make_uint4(ptx::to_tf32(v[0]), ptx::to_tf32(v[1]), ptx::to_tf32(v[2]), ptx::to_tf32(v[3]));
  *reinterpret_cast<uint4*>(at + granule_bytes) =
      make_uint4(ptx::to_tf32(v[4]), ptx::to_tf32(v[5]), ptx::to_tf32(v[6]), ptx::to_tf32(v[7]));
}

// ---- Kernels ----------------------------------------------------------------------------------------------

/// Weights as stages want them: [group and block of channels][kind][slab][item][slot][step of k][granule]
/// [channel][16 bytes]. blockIdx is (item, slab, group and block of channels).
template <int channels, int slots>
__global__ void __launch_bounds__(128)
    pack_kernel(const float* weight, unsigned char* packed, const __grid_constant__ StridedPlan p,
                const __grid_constant__ StridedShifts shifts) {
  const int number = blockIdx.x, slab = blockIdx.y;
  const int group = blockIdx.z / p.channel_blocks, channel_block = blockIdx.z % p.channel_blocks;
  int k = 0;
  const int kinds = p.transposed ? p.row_blocks : p.kinds;
  while (k + 1 < kinds && number >= p.kind[k + 1].first) ++k;
  const StridedKind& kind = p.kind[k];
  const StridedItem item = p.item[number];
  const StridedShift shift = shifts.of[number];
  const int d = kind.low_d + shift.d, h = kind.low_h + shift.h, w = p.low_w + shift.w;
  float* to = reinterpret_cast<float*>(packed + int64_t{blockIdx.z} * p.block_weights + kind.weights +
                                       int64_t{slab} * kind.stage_weights + item.weights);
  constexpr int rows = slots > 1 ? slots / 2 : 1, per_row = slots > 1 ? 2 : 1;
  for (int slot = 0; slot < slots; ++slot) {
    if (!(item.slots >> slot & 1)) continue;
    const PhasePair row = p.row[p.transposed ? k * rows + slot / per_row : 0];
    const int tap_d = tap_of(p.d, p.transposed, p.transposed ? row.d : kind.phase_d, d);
    const int tap_h = tap_of(p.h, p.transposed, p.transposed ? row.h : kind.phase_h, h);
    const int tap_w = tap_of(p.w, p.transposed, p.phase_w[p.transposed ? slot % per_row : shift.phase_w], w);
    const int taps = p.d.kernel * p.h.kernel * p.w.kernel;
    const int tap = (tap_d * p.h.kernel + tap_h) * p.w.kernel + tap_w;
    for (int i = threadIdx.x; i < p.k_steps * channels * 8; i += blockDim.x) {
      const int in = (slab * p.k_steps + i / (channels * 8)) * 8 + i / (channels * 4) % 2 * 4 + i % 4;
      const int out = channel_block * channels + i / 4 % channels;
      float value = 0;
      if (in < p.in_per_group && out < p.out_per_group) {
        // The weight is (small channels, big channels of the group, taps); conv_transpose3d reads small.
        const int64_t row_of = p.transposed ? (int64_t{group} * p.in_per_group + in) * p.out_per_group + out
                                            : (int64_t{group} * p.out_per_group + out) * p.in_per_group + in;
        value = weight[row_of * taps + tap];
      }
      to[i] = __uint_as_float(ptx::to_tf32(value));
    }
    to += p.k_steps * channels * 8;
  }
}

struct Shared {
  unsigned char *stages, *weights, *staging;
  int* table;
  ptx::Mbarrier *full, *empty, *weights_here;
};

template <int channels, int slots, int tiles>
struct StridedKernel {
  static constexpr int per_row = slots > 1 ? 2 : 1, rows = slots > 1 ? slots / 2 : 1;
  static constexpr int sums = channels / 2;  // of a slot, in a thread
  static constexpr int pitch = staging_pitch(slots);

  // -- The producer: input to shared memory --

  static __device__ __forceinline__ void produce(const float* __restrict__ input,
                                                 const unsigned char* __restrict__ packed,
                                                 const Columns& columns, const Shared& shared,
                                                 const StridedPlan& p) {
    const int thread = threadIdx.x - consumer_threads;
    const int positions = 128 * tiles / p.depths;
    const int phases_w = p.transposed ? 1 : p.phases_w;
    const unsigned char* const weights =
        packed + int64_t{columns.group * p.channel_blocks + columns.channel_block} * p.block_weights;
    const int first_kind = p.transposed ? columns.row_block : 0;
    Ring ring;
    if (thread == 0 && p.weight_bytes) {
      const int bytes = p.transposed ? p.kind[first_kind].stage_weights * p.slabs : p.block_weights;
      ptx::mbarrier_arrive_expecting(*shared.weights_here, bytes);
      if (bytes)
        ptx::bulk_copy(shared.weights, weights + (p.transposed ? p.kind[first_kind].weights : 0), bytes,
                       *shared.weights_here);
    }
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
      const Tile tile = tile_of(number, positions, p);
      const float* const image =
          input + (int64_t{tile.image} * p.groups + columns.group) * p.in_per_group * p.in_channel;
      for (int k = first_kind; k < first_kind + p.kinds; ++k) {
        const StridedKind& kind = p.kind[k];
        if (kind.items == 0) continue;
        const int count = kind.planes * kind.plane * phases_w;
        // Where the input of this thread's positions lies in a channel.
        for (int i = thread; i < count; i += producer_threads) {
          const int at = phases_w == 2 ? i / 2 : i, phase = phases_w == 2 ? i % 2 : 0;
          const int plane = at / kind.plane, flat = tile.position + at % kind.plane;
          const int row = flat / p.pitch, column = flat % p.pitch;
          const int d = (tile.depth + plane + kind.low_d) * p.d.in_step + kind.phase_d;
          const int h = (row + kind.low_h) * p.h.in_step + kind.phase_h;
          const int w = (column + p.low_w) * p.w.in_step + (p.transposed ? 0 : p.phase_w[phase]);
          const bool inside = static_cast<unsigned>(d) < static_cast<unsigned>(p.d.in) &&
                              static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in) &&
                              static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in);
          shared.table[i] = inside ? (d * p.h.in + h) * p.w.in + w : -1;
        }
        for (int slab = 0; slab < p.slabs; ++slab) {
          ptx::mbarrier_wait(shared.empty[ring.stage], ring.parity ^ 1);
          unsigned char* const stage = shared.stages + ring.stage * p.stage_bytes;
          const int window_bytes = p.k_steps * kind.granule_pitch * 32;
          if (thread == 0 && !p.weight_bytes) {
            ptx::mbarrier_arrive_expecting(shared.full[ring.stage], kind.stage_weights);
            ptx::bulk_copy(stage + window_bytes, weights + kind.weights + int64_t{slab} * kind.stage_weights,
                           kind.stage_weights, shared.full[ring.stage]);
          }
          for (int step = 0; step < p.k_steps; ++step) {
            const int channel = (slab * p.k_steps + step) * 8, left = p.in_per_group - channel;
            const float* const from = image + int64_t{channel} * p.in_channel;
            unsigned char* const to = stage + step * kind.granule_pitch * 32;
            for (int first = thread; first < count; first += 4 * producer_threads) {
              int offset[4];
              float v[4][8];
#pragma unroll
              for (int u = 0; u < 4; ++u) {
                const int i = first + u * producer_threads;
                offset[u] = i < count ? shared.table[i] : -1;
              }
              if (left >= 8) {
#pragma unroll
                for (int u = 0; u < 4; ++u)
#pragma unroll
                  for (int c = 0; c < 8; ++c)
                    v[u][c] = offset[u] >= 0 ? __ldg(from + int64_t{c} * p.in_channel + offset[u]) : 0.0f;
              } else {
#pragma unroll
                for (int u = 0; u < 4; ++u)
#pragma unroll
                  for (int c = 0; c < 8; ++c)
                    v[u][c] = offset[u] >= 0 && c < left ? __ldg(from + int64_t{c} * p.in_channel + offset[u])
                                                         : 0.0f;
              }
#pragma unroll
              for (int u = 0; u < 4; ++u) {
                const int i = first + u * producer_threads;
                if (i >= count) break;
                const int position = phases_w == 2 ? i % 2 * kind.phase_pitch + i / 2 : i;
                store_step(to + position * 16, kind.granule_pitch * 16, v[u]);
              }
            }
          }
          ptx::fence_proxy_async();
          __syncwarp();
          if (thread % 32 == 0) ptx::mbarrier_arrive(shared.full[ring.stage]);
          ring.advance(p.stages);
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
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const int granule = kind.granule_pitch * 16;
    if constexpr (slots == 1) {
      const uint64_t a0 = ptx::shared_matrix(stage + first_position * 16, granule, 128);
      const uint64_t b0 = ptx::shared_matrix(weights, channels * 16, 128);
      ptx::wgmma_fence();
      for (int i = kind.first; i < kind.first + kind.items; ++i) {
        const StridedItem item = p.item[i];
        for (int step = 0; step < p.k_steps; ++step) {
          const uint64_t a = ptx::moved(a0, item.position * 16 + step * 2 * granule);
          const uint64_t b = ptx::moved(b0, item.weights + step * channels * 32);
#pragma unroll
          for (int t = 0; t < tiles; ++t)
            ptx::wgmma<Operand::tf32, channels>(sum[t], ptx::moved(a, t * 64 * 16), b);
        }
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
    } else {
      // A fragment serves all slots of its shift, from registers.
      const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
      const unsigned char* const own = stage + (first_position + warp * 16 + lane / 4) * 16 + lane % 4 * 4;
      const uint64_t b0 = ptx::shared_matrix(weights, channels * 16, 128);
      const int work = kind.items * p.k_steps;
      int number = kind.first, step = 0;
      uint32_t a[2][tiles][4];
      for (int i = 0; i < work; i += 2) {
#pragma unroll
        for (int buffer = 0; buffer < 2; ++buffer) {
          if (i + buffer < work) {
            const StridedItem item = p.item[number];
            const unsigned char* const from = own + item.position * 16 + step * 2 * granule;
#pragma unroll
            for (int t = 0; t < tiles; ++t) {
              const auto load = [&](int bytes) {
                return *reinterpret_cast<const uint32_t*>(from + t * 64 * 16 + bytes);
              };
              a[buffer][t][0] = load(0);
              a[buffer][t][1] = load(128);
              a[buffer][t][2] = load(granule);
              a[buffer][t][3] = load(granule + 128);
            }
            uint64_t b = ptx::moved(b0, item.weights + step * channels * 32);
            ptx::wgmma_fence();
#pragma unroll
            for (int slot = 0; slot < slots; ++slot) {
              if (item.slots >> slot & 1) {
#pragma unroll
                for (int t = 0; t < tiles; ++t)
                  ptx::wgmma<Operand::tf32, channels>(sum[t] + slot * sums, a[buffer][t], b);
                b = ptx::moved(b, p.k_steps * channels * 32);
              }
            }
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            if (++step == p.k_steps) step = 0, ++number;
          }
        }
      }
      ptx::wgmma_wait<0>();
    }
#endif
  }

  /// Where a lane writes: up to 4 of the elements of a span of 64 cells.
  struct Span {
    int64_t offset[4];         // in a channel, at phases (0, 0) along d and h
    int from[4];               // in a row of staging; -1: a dead phase along w
    int left_d[4], left_h[4];  // phases that exist; 0 in left_d: none
  };
  static __device__ __forceinline__ Span span_of(const Tile& tile, int depth, int position,
                                                 const StridedPlan& p) {
    Span s;
    const int lane = threadIdx.x % 32;
    const int d = tile.depth + depth;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int x = lane + 32 * i;
      const int cell = p.w.out_step == 2 ? x / 2 : x, phase = p.w.out_step == 2 ? x % 2 : 0;
      const int flat = position + cell, row = flat / p.pitch, column = flat % p.pitch;
      const int w = column * p.w.out_step + phase;
      const bool exists =
          x < 64 * p.w.out_step && d < p.d.cells && row < p.h.cells && column < p.w.cells && w < p.w.out;
      s.offset[i] = (int64_t{d} * p.d.out_step * p.h.out + row * p.h.out_step) * p.w.out + w;
      s.left_d[i] = exists ? p.d.out - d * p.d.out_step : 0;
      s.left_h[i] = p.h.out - row * p.h.out_step;
      s.from[i] = -1;
      if (!p.transposed) s.from[i] = cell;
      if (p.transposed && p.phases_w > 0 && phase == p.phase_w[0]) s.from[i] = cell * per_row;
      if (p.transposed && p.phases_w > 1 && phase == p.phase_w[1]) s.from[i] = cell * per_row + per_row - 1;
    }
    return s;
  }

  static __device__ __forceinline__ void write(const float (&sum)[tiles][slots * sums], float* staging,
                                               const Tile& tile, const Columns& columns, int warpgroup,
                                               const float* __restrict__ bias, float* __restrict__ output,
                                               const StridedPlan& p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int channel0 = columns.channel_block * channels;
    const int count = min(channels, p.out_per_group - channel0);
    const int group0 = columns.group * p.out_per_group + channel0;
    float* const to = output + (int64_t{tile.image} * p.groups * p.out_per_group + group0) * p.out_channel;
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const int depth = p.depths == 2 ? warpgroup : 0;
      const int position = tile.position + (p.depths == 2 ? 0 : warpgroup * tiles * 64) + t * 64;
      const Span span = span_of(tile, depth, position, p);
      const auto copy = [&](const PhasePair& row, bool alive) {
        const int64_t row_offset = (int64_t{row.d} * p.h.out + row.h) * p.w.out;
#pragma unroll 2
        for (int c = warp; c < count; c += 4) {
          const float first = bias ? __ldg(bias + group0 + c) : 0.0f;
          float* const channel = to + int64_t{c} * p.out_channel + row_offset;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (row.d < span.left_d[i] && row.h < span.left_h[i])
              channel[span.offset[i]] =
                  alive && span.from[i] >= 0 ? staging[c * pitch + span.from[i]] + first : first;
          }
        }
      };
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (r == 0 || columns.row_block * rows + r < p.rows) {
          if (columns.row_block * rows + r < p.rows) {
            ptx::named_barrier<128>(1 + warpgroup);  // what was staged before has been read
            float* const at = staging + lane % 4 * 2 * pitch + (warp * 16 + lane / 4) * per_row;
#pragma unroll
            for (int j = 0; j < sums / 4; ++j)
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                float* const cell = at + (j * 8 + e % 2) * pitch + e / 2 * 8 * per_row;
                if constexpr (per_row == 2)
                  *reinterpret_cast<float2*>(cell) =
                      make_float2(sum[t][(r * 2) * sums + j * 4 + e], sum[t][(r * 2 + 1) * sums + j * 4 + e]);
                else
                  *cell = sum[t][j * 4 + e];
              }
            ptx::named_barrier<128>(1 + warpgroup);
            copy(p.row[columns.row_block * rows + r], true);
          }
        }
      }
      for (int r = columns.row_block; r < p.dead_rows; r += p.row_blocks) copy(p.row[p.rows + r], false);
    }
  }

  static __device__ __forceinline__ void consume(const Columns& columns, const Shared& shared, int warpgroup,
                                                 const float* __restrict__ bias, float* __restrict__ output,
                                                 const StridedPlan& p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const int positions = 128 * tiles / p.depths;
    float* const staging = reinterpret_cast<float*>(shared.staging) + warpgroup * channels * pitch;
    const int first_kind = p.transposed ? columns.row_block : 0;
    Ring ring;
    if (p.weight_bytes) ptx::mbarrier_wait(*shared.weights_here, 0);
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    for (int number = blockIdx.x; number < all_tiles; number += gridDim.x) {
      const Tile tile = tile_of(number, positions, p);
      float sum[tiles][slots * sums];
#pragma unroll
      for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int i = 0; i < slots * sums; ++i) sum[t][i] = 0;
      for (int k = first_kind; k < first_kind + p.kinds; ++k) {
        const StridedKind& kind = p.kind[k];
        if (kind.items == 0) continue;
        const int first_position = p.depths == 2 ? warpgroup * kind.plane : warpgroup * tiles * 64;
        for (int slab = 0; slab < p.slabs; ++slab) {
          const unsigned char* const stage = shared.stages + ring.stage * p.stage_bytes;
          const unsigned char* const weights =
              p.weight_bytes ? shared.weights + (p.transposed ? 0 : kind.weights) + slab * kind.stage_weights
                             : stage + p.k_steps * kind.granule_pitch * 32;
          ptx::mbarrier_wait(shared.full[ring.stage], ring.parity);
          multiply(sum, stage, weights, first_position, kind, p);
          if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.empty[ring.stage]);
          ring.advance(p.stages);
        }
      }
      write(sum, staging, tile, columns, warpgroup, bias, output, p);
    }
#endif
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
  shared.table = reinterpret_cast<int*>(shared.weights + p.weight_bytes);
  shared.staging = shared.weights + p.weight_bytes + p.table_bytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], producer_warps + (p.weight_bytes ? 0 : 1));
      ptx::mbarrier_init(empty[i], consumer_warps);
    }
    ptx::mbarrier_init(weights_here, 1);
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  const Columns columns = columns_of(blockIdx.y, p);
  // From lane 0, so that the compiler knows that warps do not part here.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup == 2)
    Kernel::produce(input, packed, columns, shared, p);
  else
    Kernel::consume(columns, shared, warpgroup, bias, output, p);
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
  one(std::integer_sequence<int, 8, 8, 2>{});
  one(std::integer_sequence<int, 16, 8, 1>{});
  one(std::integer_sequence<int, 32, 8, 1>{});
  one(std::integer_sequence<int, 48, 4, 1>{});
  one(std::integer_sequence<int, 64, 4, 1>{});
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
    const int last = (transposed ? p.row_blocks : p.kinds) - 1;
    const int items = last < 0 ? 0 : p.kind[last].first + p.kind[last].items;
    if (items > 0)
      pack_kernel<channels, slots>
          <<<dim3(static_cast<unsigned>(items), static_cast<unsigned>(p.slabs),
                  static_cast<unsigned>(blocks)),
             128, 0, launch.stream()>>>(detail::ptr<float>(weight), to, p, planned->shifts);
    const auto kernel = product_kernel<channels, slots, tiles>;
    launch.allow_shared_memory<product_kernel<channels, slots, tiles>>(p.shared_bytes);
    const int columns = p.groups * p.channel_blocks * p.row_blocks;
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    const int in_parallel = std::clamp(multiprocessors() / columns, 1, all_tiles);
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

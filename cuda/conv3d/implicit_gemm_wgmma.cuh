#pragma once

// The Hopper rung of conv3d and conv_transpose3d where cells step by one: the flat product (flat_product.h)
// by wgmma.
//
// Who owns what: a block of 16 warps is persistent and takes one job after the other, a tile of 256 flat
// positions x `depths` outputs along d x `channels`. Warps 0 to 7, two warpgroups, multiply: each owns 128 of
// the positions, its sums in registers. Warps 8 to 14 bring the input and warp 15 the weights, through two
// rings of shared memory with a pair of mbarriers (full, empty) to a slot. So loads, conversions and stores
// of later planes run while the tensor cores work, also across jobs.
//
// Input plane: [granule][position of the window][16 bytes], a granule being 4 channels of TF32 (8 of 16
// bits). That is a K-major operand of wgmma without swizzle, and stays one when it starts at any other
// position: every tap is the same plane, shifted. Producer lanes stand for positions, so that loads from
// NCDHW coalesce and the 16-byte stores are free of bank conflicts; values are rounded once.
//
// Weights of a tap: [granule][column][16 bytes], columns being (tap along d, descending) x (channel). A plane
// is multiplied once for each output depth that it serves, by instructions of `channels` columns. They are
// all of one shape, which keeps those on the same sums in order, so they are waited for only to give slots
// back, one plane late. (One instruction for all depths of a plane would be wider and read the input less
// often, but differs in shape from plane to plane, and ptxas then waits for each.)
//
// Nothing is shared between blocks: no atomics, and the bits never change. Non-finite values: whatever an Inf
// or NaN of the input touches is Inf or NaN, and nothing else; one in the weights makes NaN also of outputs
// whose tap with it falls outside the input.

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/conv3d/flat_product.h>
#include <voxgrad/cuda/conv3d/split_tf32.cuh>
#include <voxgrad/cuda/ptx/mbarrier.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda::flat {

// ---- Operands ---------------------------------------------------------------------------------------------

/// f32 rounded to TF32.
struct Tf32 {
  static constexpr ptx::Operand operand = ptx::Operand::tf32;
  using Element = uint32_t;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return ptx::to_tf32(x); }
};

/// Rounded to 16 bits, or stored so.
struct Bf16 {
  static constexpr ptx::Operand operand = ptx::Operand::bf16;
  using Element = bfloat16;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return bfloat16(x); }
};
struct F16 {
  static constexpr ptx::Operand operand = ptx::Operand::f16;
  using Element = float16;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return float16(x); }
};

/// f32 as a sum of two TF32 numbers, high and low. Of their four products the last is below the rounding of
/// f32 and left out. The tensor cores truncate when they add, so their sums move to f32 registers before they
/// are long.
struct Tf32x3 {
  static constexpr ptx::Operand operand = ptx::Operand::tf32;
  using Element = uint32_t;
  static constexpr int parts = 2;
  static __device__ __forceinline__ Element part(float x, int i) {
    const uint32_t high = tf32_high(x);
    return i == 0 ? high : tf32_low(x, high);
  }
};

/// How a kernel cuts the work.
template <class Storage_, class Operand_, int channels_, int depths_, int taps_d_>
struct Tile {
  using Storage = Storage_;
  using Operand = Operand_;
  using Element = typename Operand::Element;
  static constexpr int positions = 256, channels = channels_, depths = depths_, taps_d = taps_d_;
  static constexpr int parts = Operand::parts;
  static constexpr bool split = parts > 1;
  static constexpr int granule = 16 / sizeof(Element);  // channels
  static constexpr int slab = 2 * granule;              // k of one instruction
  static constexpr int planes = depths + taps_d - 1;    // that a tile reads at one group of taps
  static constexpr int tap_bytes = taps_d * channels * 32 * parts;
  static constexpr FlatTile host{positions, depths, channels, taps_d, slab, parts};

  static constexpr int sums = depths * channels * parts;  // of a thread: two 64 x (depths * channels) tiles
  static constexpr int consumer_registers = sums > 176 ? 216 : sums > 144 ? 208 : 192;
  static constexpr int producer_registers = 256 - consumer_registers;
  static_assert(sums <= 192 && channels % 8 == 0);
};

constexpr int consumer_warps = 8, loader_warps = 7;
constexpr int block_threads = 32 * (consumer_warps + loader_warps + 1);

// ---- Rings ------------------------------------------------------------------------------------------------

constexpr int most_slots = 24;

/// Barriers of the slots of a ring, in shared memory.
struct Barriers {
  ptx::Mbarrier full[most_slots], empty[most_slots];
};
constexpr int barrier_bytes = 1024;
static_assert(2 * sizeof(Barriers) <= barrier_bytes);

/// Where one side of a ring stands.
struct Ring {
  int slots;
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
  __device__ __forceinline__ void wait_full(Barriers& b) const { ptx::mbarrier_wait(b.full[slot], parity); }
  __device__ __forceinline__ void wait_empty(Barriers& b) const {
    ptx::mbarrier_wait(b.empty[slot], parity ^ 1);
  }
};

// ---- The order of the work, of consumers and producers alike ----------------------------------------------

struct Job {
  int channel_block, tile, group;
  int first_depth;  // the outputs are first_depth + j * (tap step of d)
  int depths;       // that exist
};

template <class Tile>
__device__ __forceinline__ Job job_at(int64_t i, const FlatProduct& p) {
  Job job;
  job.channel_block = static_cast<int>(i % p.channel_blocks);
  i /= p.channel_blocks;
  job.tile = static_cast<int>(i % p.tiles);
  i /= p.tiles;
  const int block = static_cast<int>(i % p.depth_blocks), step = p.d.tap_step;
  job.group = static_cast<int>(i / p.depth_blocks);
  job.first_depth = block % step + block / step * Tile::depths * step;
  job.depths = min(Tile::depths, (p.d.cells - job.first_depth + step - 1) / step);  // may be negative
  return job;
}

/// Planes of a tile that matter: those of the input, that an output needs. Plane q is input cell
/// `cell + q * (tap step of d)`.
struct Planes {
  int cell, first, end;
};
template <class Tile>
__device__ __forceinline__ Planes planes_of(const Job& job, int depth_group, const FlatProduct& p) {
  const int step = p.d.tap_step, cell = job.first_depth + depth_group * Tile::taps_d * step + p.d.base;
  const int first = cell < 0 ? (step - 1 - cell) / step : 0;
  const int beyond = cell < p.d.in_cells ? (p.d.in_cells - 1 - cell) / step + 1 : 0;
  return {cell, first, job.depths > 0 ? min(job.depths + Tile::taps_d - 1, beyond) : 0};
}

/// f(slab, group of taps along d, group of rows of taps), in order.
template <class F>
__device__ __forceinline__ void for_each_pass(const FlatProduct& p, F f) {
  for (int slab = 0; slab < p.slabs; ++slab)
    for (int d = 0; d < p.depth_groups; ++d)
      for (int rows = 0; rows < p.row_groups; ++rows) f(slab, d, rows);
}

/// Taps of a window.
__device__ __forceinline__ int taps_in(int row_group, const FlatProduct& p) {
  return min(p.rows, p.h.taps - row_group * p.rows) * p.w.taps;
}

// ---- Weights ----------------------------------------------------------------------------------------------

/// [group][block of channels][slab][group of taps along d][tap (h, w)][granule][column][channel of the
/// granule], zeros for channels that do not exist.
template <class Tile>
__global__ void __launch_bounds__(256)
    pack_kernel(const typename Tile::Storage* weight, typename Tile::Element* packed,
                const __grid_constant__ FlatProduct p, bool transposed, int kernel_h, int kernel_w,
                int64_t kernel_taps, int64_t numel, int64_t* not_split) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel;
       i += int64_t{gridDim.x} * blockDim.x) {
    int64_t rest = i;
    const auto next = [&](int extent) {
      const auto index = static_cast<int>(rest % extent);
      rest /= extent;
      return index;
    };
    const int in_granule = next(Tile::granule), out_in_block = next(Tile::channels);
    const int td = Tile::taps_d - 1 - next(Tile::taps_d), granule = next(2), part = next(Tile::parts);
    const int tw = next(p.w.taps), th = next(p.h.taps);
    const int d = p.d.first_tap + (next(p.depth_groups) * Tile::taps_d + td) * p.d.tap_pace;
    const int h = p.h.first_tap + th * p.h.tap_pace, w = p.w.first_tap + tw * p.w.tap_pace;
    const int in = next(p.slabs) * Tile::slab + granule * Tile::granule + in_granule;
    const int out = next(p.channel_blocks) * Tile::channels + out_in_block;
    const int64_t group = rest;
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group) {
      // The weight is (small channels, big channels of the group, taps); the transposed op reads small.
      const int64_t row = transposed ? (group * p.in_per_group + in) * p.out_per_group + out
                                     : (group * p.out_per_group + out) * p.in_per_group + in;
      value = static_cast<float>(weight[row * kernel_taps + (int64_t{d} * kernel_h + h) * kernel_w + w]);
    }
    packed[i] = Tile::Operand::part(value, part);
    if constexpr (Tile::split)
      if (!has_tf32_low(tf32_high(value))) *not_split = 1;
  }
}

template <class Tile>
int64_t packed_numel(const FlatProduct& p) {
  return int64_t{p.groups} * p.channel_blocks * p.slabs * p.depth_groups * p.h.taps * p.w.taps *
         Tile::tap_bytes / static_cast<int64_t>(sizeof(typename Tile::Element));
}

/// One thread: all chunks of weights, in the order of their use.
template <class Tile>
__device__ void bring_weights(const typename Tile::Element* packed, unsigned char* stages, Barriers& barriers,
                              const FlatProduct& p) {
  Ring ring{p.stages};
  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at<Tile>(i, p);
    const auto* const block = reinterpret_cast<const unsigned char*>(packed) +
                              (int64_t{job.group} * p.channel_blocks + job.channel_block) * p.slabs *
                                  p.depth_groups * p.h.taps * p.w.taps * Tile::tap_bytes;
    for_each_pass(p, [&](int slab, int depth_group, int row_group) {
      const int64_t first_tap = (int64_t{slab} * p.depth_groups + depth_group) * p.h.taps * p.w.taps +
                                row_group * p.rows * p.w.taps;
      const int taps = taps_in(row_group, p);
      for (int tap = 0; tap < taps; tap += p.chunk) {
        const uint32_t bytes = min(p.chunk, taps - tap) * Tile::tap_bytes;
        ring.wait_empty(barriers);
        ptx::mbarrier_arrive_expecting(barriers.full[ring.slot], bytes);
        ptx::bulk_copy(stages + ring.slot * p.chunk * Tile::tap_bytes,
                       block + (first_tap + tap) * Tile::tap_bytes, bytes, barriers.full[ring.slot]);
        ring.advance();
      }
    });
  }
}

// ---- Input ------------------------------------------------------------------------------------------------

/// A position of the flat plane.
struct Place {
  int image, h, w;
};
__device__ __forceinline__ Place place_of(int flat, const FlatProduct& p) {
  const int row = p.pitch_w.quotient(flat), image = p.pitch_h.quotient(row);
  return {image, row - image * p.pitch_h.divisor, flat - row * p.pitch_w.divisor};
}

/// A warp's share of all planes: every loader_warps-th, so that there are as many planes under way as warps.
/// A lane takes every 32nd position of the window, some of them at a time: all of their loads, then all of
/// their stores. (Loads of later positions between these stores do not help: a warp has six scoreboards, and
/// a store would wait for the later loads as well.)
template <class Tile>
__device__ void bring_input(const typename Tile::Storage* input, unsigned char* planes_memory,
                            Barriers& barriers, int warp, int lane, const FlatProduct& p,
                            int64_t* not_split) {
  using Element = typename Tile::Element;
  constexpr int granule = Tile::granule;
  constexpr int batch = (Tile::producer_registers < 48 ? 16 : 20) / granule,
                batches = (most_window / 32 + batch - 1) / batch;
  constexpr uint32_t outside = 0xffffffff;
  using Storage = typename Tile::Storage;
  bool all_split = true;

  uint32_t from[batches][batch];  // where the lane's positions lie, from the first image's depth 0 on
  Ring ring{p.planes};
  const int loaders = min(loader_warps, p.planes);
  if (warp >= loaders) return;
  int turn = 0;  // whose the next plane is

  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at<Tile>(i, p);
    const int first_image = place_of(job.tile * Tile::positions, p).image;
    const int64_t image_numel = int64_t{p.groups} * p.in_per_group * p.in_channel;
    const Storage* const source =
        input + first_image * image_numel + int64_t{job.group} * p.in_per_group * p.in_channel;
    int located = -1;  // the group of rows that `from` is for
    for_each_pass(p, [&](int slab, int depth_group, int row_group) {
      const Planes planes = planes_of<Tile>(job, depth_group, p);
      for (int q = planes.first; q < planes.end; ++q) {
        const bool mine = turn == warp;
        turn = turn + 1 == loaders ? 0 : turn + 1;
        if (mine) {
          if (located != row_group) {
            located = row_group;
#pragma unroll
            for (int b = 0; b < batches; ++b) {
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const int position = (b * batch + u) * 32 + lane;
                const Place at =
                    place_of(job.tile * Tile::positions + position + row_group * p.rows * p.row_shift, p);
                const int h = at.h + p.h.base, w = at.w + p.w.base;
                const bool inside = position < p.window && at.image < p.batch &&
                                    static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in_cells) &&
                                    static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in_cells);
                from[b][u] =
                    inside ? static_cast<uint32_t>((at.image - first_image) * static_cast<int>(image_numel) +
                                                   h * p.w.in_cells + w)
                           : outside;
              }
            }
          }
          const int64_t cell = int64_t{planes.cell + q * p.d.tap_step} * p.h.in_cells * p.w.in_cells;
          auto* plane = reinterpret_cast<uint4*>(planes_memory + ring.slot * p.window * 32 * Tile::parts);
          bool empty = false;
          for (int channel = slab * Tile::slab; channel < (slab + 1) * Tile::slab; channel += granule) {
            const Storage* const channel_source = source + channel * p.in_channel + cell;
            const int left = p.in_per_group - channel;
#pragma unroll
            for (int b = 0; b < batches; ++b) {
              if (b * batch * 32 >= p.window) break;
              float value[batch][granule];
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const Storage* at = channel_source + from[b][u];
#pragma unroll
                for (int c = 0; c < granule; ++c) {
                  value[u][c] = from[b][u] != outside && c < left ? static_cast<float>(*at) : 0.0f;
                  at += p.in_channel;
                }
              }
              if (!empty) ring.wait_empty(barriers);
              empty = true;
#pragma unroll
              for (int u = 0; u < batch; ++u) {
                const int position = (b * batch + u) * 32 + lane;
                if (position >= p.window) continue;
#pragma unroll
                for (int part = 0; part < Tile::parts; ++part) {
                  alignas(16) Element bits[granule];
#pragma unroll
                  for (int c = 0; c < granule; ++c) bits[c] = Tile::Operand::part(value[u][c], part);
                  plane[part * 2 * p.window + position] = *reinterpret_cast<const uint4*>(bits);
                }
                if constexpr (Tile::split) {
#pragma unroll
                  for (int c = 0; c < granule; ++c) all_split &= has_tf32_low(tf32_high(value[u][c]));
                }
              }
            }
            plane += p.window;
          }
          ptx::fence_proxy_async();
          __syncwarp();
          if (lane == 0) ptx::mbarrier_arrive(barriers.full[ring.slot]);
        }
        ring.advance();
      }
    });
  }
  if (!all_split) *not_split = 1;
}

// ---- Products ---------------------------------------------------------------------------------------------

template <class F, int... q>
__device__ __forceinline__ void for_each_of(std::integer_sequence<int, q...>, F f) {
  (f(std::integral_constant<int, q>{}), ...);
}

/// A slot that a warp has done with, but for products still under way.
struct Released {
  Barriers& barriers;
  int slot = -1;  // none

  __device__ __forceinline__ void later(int s) { slot = s; }
  __device__ __forceinline__ void now(int lane) {
    if (slot >= 0 && lane == 0) ptx::mbarrier_arrive(barriers.empty[slot]);
    slot = -1;
  }
};

/// A warpgroup's half of every tile.
template <class Tile>
__device__ void multiply(const unsigned char* planes_memory, const unsigned char* stages,
                         Barriers& plane_barriers, Barriers& stage_barriers,
                         const typename Tile::Storage* bias, typename Tile::Storage* output, int warpgroup,
                         int warp, int lane, const FlatProduct& p) {
  using Storage = typename Tile::Storage;
  constexpr int channels = Tile::channels, depths = Tile::depths;
  constexpr int own_positions = Tile::positions / 2;
  Ring plane_ring{p.planes}, stage_ring{p.stages};
  Released old_plane{plane_barriers}, old_stage{stage_barriers};
  float sum[2][depths][channels / 2];                                        // in the tensor cores' order
  float total[2][Tile::split ? depths : 1][Tile::split ? channels / 2 : 1];  // what sums moved to

  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at<Tile>(i, p);
    const int first_channel = job.channel_block * channels + lane % 4 * 2;
    float first[channels / 8][2];  // bias of the thread's columns, two of every 8
#pragma unroll
    for (int n = 0; n < channels / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int channel = first_channel + n * 8 + e;
        first[n][e] = bias && channel < p.out_per_group
                          ? static_cast<float>(bias[job.group * p.out_per_group + channel])
                          : 0.0f;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < depths; ++j) {
#pragma unroll
        for (int s = 0; s < channels / 2; ++s) {
          if constexpr (Tile::split)
            total[half][j][s] = 0;
          else
            sum[half][j][s] = 0;
        }
      }
    }

    for_each_pass(p, [&](int, int depth_group, int row_group) {
      const Planes planes = planes_of<Tile>(job, depth_group, p);
      const int taps = taps_in(row_group, p);
      Ring at = plane_ring;
      for (int first_tap = 0; first_tap < taps; first_tap += p.chunk) {
        const int chunk = min(p.chunk, taps - first_tap);
        const bool last = first_tap + p.chunk >= taps;
        const int first_row = first_tap / p.w.taps, first_column = first_tap - first_row * p.w.taps;
        const int first_shift = first_row * p.row_shift + first_column * p.column_shift;
        stage_ring.wait_full(stage_barriers);
        const unsigned char* const stage = stages + stage_ring.slot * p.chunk * Tile::tap_bytes;
        at = plane_ring;
        for_each_of(std::make_integer_sequence<int, Tile::planes>{}, [&](auto plane_number) {
          // Plane q meets outputs low to high with taps q - low down to q - high.
          constexpr int q = plane_number;
          constexpr int low = q < Tile::taps_d ? 0 : q - Tile::taps_d + 1;
          constexpr int high = q < depths ? q : depths - 1;
          if (q < planes.first || q >= planes.end) return;
          at.wait_full(plane_barriers);
          uint64_t a = ptx::shared_matrix(
              planes_memory +
                  (at.slot * p.window * 2 * Tile::parts + warpgroup * own_positions + first_shift) * 16,
              p.window * 16, 128);
          uint64_t b = ptx::shared_matrix(stage, Tile::taps_d * channels * 16, 128);
          int column = first_column;
          ptx::wgmma_fence();
          for (int tap = 0; tap < chunk; ++tap) {
#pragma unroll
            for (int j = low; j <= high; ++j) {
              const uint64_t weights = ptx::moved(b, (Tile::taps_d - 1 - (q - j)) * channels * 16);
#pragma unroll
              for (int half = 0; half < 2; ++half) {
                const uint64_t input = ptx::moved(a, half * 64 * 16);
                const auto product = [&](uint64_t x, uint64_t w, bool accumulate) {
                  ptx::wgmma<Tile::Operand::operand, channels>(sum[half][j], x, w, accumulate);
                };
                if constexpr (Tile::split) {
                  const uint64_t low_weights = ptx::moved(weights, Tile::tap_bytes / 2);
                  const uint64_t low_input = input + p.window * 2;
                  product(low_input, weights, tap > 0);
                  product(input, low_weights, true);
                }
                product(input, weights, true);
              }
            }
            b = ptx::moved(b, Tile::tap_bytes);
            a += p.column_shift;  // positions, which are as long as the unit of addresses
            if (++column == p.w.taps) {
              column = 0;
              a += p.row_shift - p.w.taps * p.column_shift;
            }
          }
          ptx::wgmma_commit();
          ptx::wgmma_wait<Tile::split ? 0 : 1>();
          if constexpr (Tile::split) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
              for (int j = low; j <= high; ++j) {
#pragma unroll
                for (int s = 0; s < channels / 2; ++s) total[half][j][s] += sum[half][j][s];
              }
            }
          }
          old_plane.now(lane);
          old_stage.now(lane);
          if (last) old_plane.later(at.slot);
          at.advance();
        });
        old_stage.now(lane);  // only if there was no plane
        old_stage.later(stage_ring.slot);
        stage_ring.advance();
      }
      plane_ring = at;
    });
    ptx::wgmma_wait<0>();
    old_plane.now(lane);
    old_stage.now(lane);

    // A thread holds two rows of 64 in each half, and two columns of every 8.
    const int64_t out_plane = int64_t{p.out_h} * p.out_w;
    const int64_t out_depth = int64_t{p.d.tap_step} * p.d.out_step * out_plane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const Place place = place_of(job.tile * Tile::positions + warpgroup * own_positions + half * 64 +
                                         warp % 4 * 16 + row * 8 + lane / 4,
                                     p);
        if (place.image >= p.batch || place.h >= p.h.cells || place.w >= p.w.cells) continue;
        Storage* const at =
            output +
            ((int64_t{place.image} * p.groups + job.group) * p.out_per_group + first_channel) *
                p.out_channel +
            (int64_t{job.first_depth} * p.d.out_step + p.d.out_base) * out_plane +
            (int64_t{place.h} * p.h.out_step + p.h.out_base) * p.out_w +
            (place.w * p.w.out_step + p.w.out_base);
#pragma unroll
        for (int j = 0; j < depths; ++j) {
          if (j >= job.depths) break;
          Storage* to = at + j * out_depth;
          const float* from = sum[half][j];
          if constexpr (Tile::split) from = total[half][j];
#pragma unroll
          for (int n = 0; n < channels / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (first_channel + n * 8 + e < p.out_per_group)
                to[e * p.out_channel] = Storage(from[n * 4 + row * 2 + e] + first[n][e]);
            to += 8 * p.out_channel;
          }
        }
      }
    }
  }
}

// ---- The kernel -------------------------------------------------------------------------------------------

template <class Tile>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const typename Tile::Storage* __restrict__ input,
                   const typename Tile::Element* __restrict__ packed, const typename Tile::Storage* bias,
                   typename Tile::Storage* output, const __grid_constant__ FlatProduct p,
                   int64_t* not_split) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  Barriers& plane_barriers = reinterpret_cast<Barriers*>(memory)[0];
  Barriers& stage_barriers = reinterpret_cast<Barriers*>(memory)[1];
  unsigned char* const stages = memory + barrier_bytes;
  unsigned char* const planes = stages + p.stages * p.chunk * Tile::tap_bytes;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // uniform

  if (threadIdx.x == 0) {
    for (int s = 0; s < p.planes; ++s) {
      ptx::mbarrier_init(plane_barriers.full[s], 1);
      ptx::mbarrier_init(plane_barriers.empty[s], consumer_warps);
    }
    for (int s = 0; s < p.stages; ++s) {
      ptx::mbarrier_init(stage_barriers.full[s], 1);
      ptx::mbarrier_init(stage_barriers.empty[s], consumer_warps);
    }
    ptx::mbarrier_init_done();
  }
  __syncthreads();

  if (warp < consumer_warps) {
    ptx::grow_registers_to<Tile::consumer_registers>();
    multiply<Tile>(planes, stages, plane_barriers, stage_barriers, bias, output, warp / 4, warp, lane, p);
  } else {
    ptx::shrink_registers_to<Tile::producer_registers>();
    if (warp < consumer_warps + loader_warps)
      bring_input<Tile>(input, planes, plane_barriers, warp - consumer_warps, lane, p, not_split);
    else if (lane == 0)
      bring_weights<Tile>(packed, stages, stage_barriers, p);
  }
#endif
}

}  // namespace vox::cuda::flat

#pragma once

// conv3d and conv_transpose3d of f32 on Hopper where cells have stride 1: the flat product (plan.h) by wgmma,
// with operands split into two scaled f16 numbers (f16x3.cuh). It is as accurate as f32 arithmetic.
//
// What a block owns: a block of 16 warps is persistent and takes one job after the other, a tile of 256 flat
// positions x `depths` outputs along d x `channels`. Warps 0 to 7, two warpgroups, multiply: each owns 128 of
// the positions, with its sums in registers. Warps 8 to 14 load the input and warp 15 the weights, through
// two rings of shared memory with a pair of mbarriers (full, empty) for each slot. So loads, conversions and
// stores of later planes run while the tensor cores work, also across jobs. Blocks share no results: no
// atomics, and the bits never change.
//
// Input: planes of a window (window.cuh).
//
// Products: a plane is multiplied once for each output depth that it serves, by instructions of `channels`
// columns. All have one shape, so those on the same sums run in order without waits in between; a warpgroup
// waits only to release slots, one plane late. (One instruction for all depths of a plane would be wider and
// read the input less often, but its shape would differ from plane to plane, and ptxas then waits for each.
// rolling/kernel.cuh solves that.)
//
// Sums: the rows of an accumulator are every second block of 8 positions. So the two accumulators of a warp
// hold 32 neighbouring positions, which are stored as runs of a channel (store.cuh).

#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/conv3d/flat/f16x3.cuh>
#include <voxgrad/cuda/conv3d/flat/store.cuh>
#include <voxgrad/cuda/conv3d/flat/window.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda::conv::flat {

// ---- What a block owns ------------------------------------------------------------------------------------

/// A tile of plan.h, and what follows from it.
template <int channels_, int depths_, int taps_d_>
struct Tile {
  using Storage = float;
  using Operand = F16x3;
  using Element = float16;
  static constexpr bool scaled = true;
  static constexpr TileShape host = tile_of(channels_, depths_, taps_d_);
  static constexpr int positions = host.positions, channels = channels_, depths = depths_, taps_d = taps_d_;
  static constexpr int parts = Operand::parts, granule = 16 / sizeof(Element);  // channels
  static constexpr int k_block_channels = granule, plane_granules = parts;
  static constexpr int planes = depths + taps_d - 1;  // that a tile reads at one group of taps
  static constexpr int part_bytes = zero_bytes(host), tap_bytes = part_bytes * 3;  // of the weights of a tap

  static constexpr int sums = depths * channels * parts;  // of a thread: two 64 x (depths * channels) tiles
  static constexpr int consumer_registers = sums > 176 ? 216 : sums > 144 ? 208 : 192;
  static constexpr int producer_registers = 256 - consumer_registers;
  static constexpr int loads = producer_registers < 64 ? 16 : 32;  // in flight per lane; limited by registers
  static_assert(sums <= 192 && channels % 8 == 0);
};

// ---- The producers of input -------------------------------------------------------------------------------

/// A warp's share of all planes. Warps take planes in turn, so as many planes are in flight as there are
/// warps. No more warps than slots take part, because two must not wait for the same slot.
template <class Tile>
__device__ void load_input(const float* input, unsigned char* planes_memory, Barriers& barriers,
                           float* unscale, int warp, int lane, const Product& p, int64_t* failed) {
  bool all_fit = true;
  LaneWindow<Tile> window;
  float scale = 1;  // kept while it fits, so that planes have the same scale
  Ring ring{p.planes};
  const int loaders = min(loader_warps, p.planes);
  if (warp >= loaders) return;
  int turn = 0;  // the warp that loads the next plane

  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at(i, Tile::depths, p);
    const int first_position = job.tile * Tile::positions, first_image = place_of(first_position, p).image;
    const float* const source =
        input + (int64_t{first_image} * p.groups + job.group) * p.in_per_group * p.in_channel;
    int located = -1;  // the group of rows that `window` is for
    for_each_pass(p, [&](int k_block, int depth_group, int row_group) {
      const Planes planes = planes_of(job, depth_group, Tile::taps_d, p);
      for (int q = planes.first; q < planes.end; ++q, ring.advance()) {
        const bool mine = turn == warp;
        turn = turn + 1 == loaders ? 0 : turn + 1;
        if (!mine) continue;
        if (located != row_group)
          window.locate(first_position + row_group * p.rows * p.row_shift, first_image, lane, p);
        located = row_group;
        const int64_t cell = int64_t{planes.cell + q * p.d.tap_step} * p.h.in_cells * p.w.in_cells;
        const int channel = k_block * Tile::k_block_channels;
        const float* const from = source + channel * p.in_channel + cell;
        const int left = p.in_per_group - channel;
        uint4* const to =
            reinterpret_cast<uint4*>(planes_memory + ring.slot * p.window * 16 * Tile::plane_granules);
        const auto wait = [&] { ring.wait_empty(barriers); };
        all_fit &= window.load_scaled(from, left, to, lane, p, wait, scale);
        if (lane == 0) unscale[ring.slot] = F16x3::inverse(scale);
        ptx::fence_proxy_async();
        ptx::mbarrier_arrive(barriers.full[ring.slot]);
      }
    });
  }
  if (!all_fit) *failed = 1;
}

// ---- The weights ------------------------------------------------------------------------------------------

// A separate kernel packs the weights, and one thread loads them. Those of a tap lie as [part][column][16
// bytes], columns being (tap along d, descending) x (channel).

/// [group][block of channels][k-block][group of taps along d][tap (h, w)][part][column][16 bytes].
template <class Tile>
struct Layout {
  Product p;
  int kernel_h, kernel_w;

  static constexpr int channels = Tile::granule;
  int64_t columns() const { return int64_t{p.groups} * p.channel_blocks * Tile::channels; }
  int64_t granules() const { return columns() * p.k_blocks * p.d.taps * p.h.taps * p.w.taps; }
  constexpr int64_t next_part() const { return Tile::part_bytes; }
  constexpr Granule at(auto number) const {
    const auto [k_block, d, h, w, group, block, column] =
        digits(number, {p.d.taps, p.h.taps, p.w.taps, p.groups, p.channel_blocks, Tile::channels});
    const int64_t first_tap =
        ((int64_t{group} * p.channel_blocks + block) * p.k_blocks + k_block) * p.depth_groups +
        d / Tile::taps_d;
    const int td = Tile::taps_d - 1 - d % Tile::taps_d;
    return {.group = group,
            .in = k_block * Tile::k_block_channels,
            .out = block * Tile::channels + column,
            .tap = kernel_tap(p, kernel_h, kernel_w, d, h, w),
            .to = ((first_tap * p.h.taps + h) * p.w.taps + w) * Tile::tap_bytes +
                  (td * Tile::channels + column) * 16};
  }
};

/// One thread loads all chunks of weights, in the order in which they are used.
template <class Tile>
__device__ void load_weights(const float16* packed, unsigned char* stages, Barriers& barriers,
                             const Product& p) {
  Ring ring{p.stages};
  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at(i, Tile::depths, p);
    const auto* const block = reinterpret_cast<const unsigned char*>(packed) +
                              (int64_t{job.group} * p.channel_blocks + job.channel_block) * p.k_blocks *
                                  p.depth_groups * p.h.taps * p.w.taps * Tile::tap_bytes;
    for_each_pass(p, [&](int k_block, int depth_group, int row_group) {
      const int64_t first_tap = (int64_t{k_block} * p.depth_groups + depth_group) * p.h.taps * p.w.taps +
                                row_group * p.rows * p.w.taps;
      load_taps<Tile>(block + first_tap * Tile::tap_bytes, taps_in(row_group, p), stages, ring, barriers, p);
    });
  }
}

// ---- The consumers ----------------------------------------------------------------------------------------

/// A warpgroup's half of every tile. Its positions are blocks of 8, even ones in one accumulator and odd ones
/// in the other, so that a warp's rows of both are 32 neighbours.
template <class Tile>
__device__ void multiply(const unsigned char* planes_memory, const unsigned char* stages,
                         const unsigned char* zeros, Barriers& plane_barriers, Barriers& stage_barriers,
                         const float* plane_unscale, const float* column_unscale, const float* bias,
                         float* output, int warpgroup, int warp, int lane, const Product& p) {
  constexpr int channels = Tile::channels, depths = Tile::depths;
  constexpr int own_positions = Tile::positions / 2;
  Ring plane_ring{p.planes}, stage_ring{p.stages};
  Released old_plane{plane_barriers}, old_stage{stage_barriers};
  ScaledSums<Tile> sums;
  auto& total = sums.total;
  const int most_taps = most_taps_in_sum(p);

  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at(i, Tile::depths, p);
    sums.clear();

    for_each_pass(p, [&](int, int depth_group, int row_group) {
      const Planes planes = planes_of(job, depth_group, Tile::taps_d, p);
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
          // Plane q serves outputs low to high, with taps q - low down to q - high.
          constexpr int q = plane_number;
          constexpr int low = q < Tile::taps_d ? 0 : q - Tile::taps_d + 1;
          constexpr int high = q < depths ? q : depths - 1;
          if (q < planes.first || q >= planes.end) return;
          at.wait_full(plane_barriers);
          const unsigned char* const plane =
              planes_memory +
              (at.slot * p.window * Tile::plane_granules + warpgroup * own_positions + first_shift) * 16;
          multiply_scaled_plane<Tile, q, low, high>(sums, plane, stage, zeros, chunk, first_column,
                                                    plane_unscale[at.slot], most_taps, p);
          ptx::wgmma_wait<1>();
          old_plane.now();
          old_stage.now();
          if (last) old_plane.later(at.slot);
          at.advance();
        });
        old_stage.now();  // only if there was no plane
        old_stage.later(stage_ring.slot);
        stage_ring.advance();
      }
      plane_ring = at;
    });
    sums.move();
    old_plane.now();
    old_stage.now();
    // The bias comes late, because sums need all registers.
    const int first_channel = job.channel_block * channels + lane % 4 * 2;
    float first[channels / 8][2];  // bias of the thread's columns, two of every 8
#pragma unroll
    for (int n = 0; n < channels / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int channel = first_channel + n * 8 + e;
        first[n][e] = bias && channel < p.out_per_group ? bias[job.group * p.out_per_group + channel] : 0.0f;
      }
    }
    const float* const unscale =
        column_unscale + (job.group * p.channel_blocks + job.channel_block) * channels + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < channels / 8; ++n) {
      const float2 columns = *reinterpret_cast<const float2*>(unscale + n * 8);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < depths; ++j) {
#pragma unroll
          for (int row = 0; row < 2; ++row) {
            total[half][j][n * 4 + row * 2] *= columns.x;
            total[half][j][n * 4 + row * 2 + 1] *= columns.y;
          }
        }
      }
    }

    const int64_t out_plane = int64_t{p.h.cells} * p.w.cells, out_depth = p.d.tap_step * out_plane;
    const int channel = job.channel_block * channels;
    const RunStore store(output + (int64_t{job.group} * p.out_per_group + channel) * p.out_channel +
                             job.first_depth * out_plane,
                         p.out_per_group - channel,
                         job.tile * Tile::positions + warpgroup * own_positions + warp % 4 * 32, lane, p);
#pragma unroll
    for (int j = 0; j < depths; ++j) {
      if (j >= job.depths) break;
#pragma unroll
      for (int n = 0; n < channels / 8; ++n)
        store.eight(n * 8, j * out_depth, p, [&](int block, int e) {
          const int half = block % 2, s = n * 4 + block / 2 * 2 + e;
          return total[half][j][s] + first[n][e];
        });
    }
  }
}

// ---- The kernel -------------------------------------------------------------------------------------------

template <class Tile>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const float* __restrict__ input, const float16* __restrict__ packed, const float* bias,
                   float* output, const float* column_unscale, const __grid_constant__ Product p,
                   int64_t* failed) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  Barriers& plane_barriers = reinterpret_cast<Barriers*>(memory)[0];
  Barriers& stage_barriers = reinterpret_cast<Barriers*>(memory)[1];
  float* const plane_unscale = reinterpret_cast<float*>(memory + 2 * sizeof(Barriers));
  static_assert(2 * sizeof(Barriers) + most_slots * sizeof(float) <= barrier_bytes);
  unsigned char* const stages = memory + barrier_bytes;
  unsigned char* const planes = stages + p.stages * p.chunk * Tile::tap_bytes;
  unsigned char* const zeros = planes + p.planes * p.window * 16 * Tile::plane_granules;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // uniform

  init_barriers(plane_barriers, stage_barriers, p);
  if (threadIdx.x < Tile::part_bytes / 16) reinterpret_cast<uint4*>(zeros)[threadIdx.x] = uint4{0, 0, 0, 0};
  ptx::fence_proxy_async();
  __syncthreads();

  if (warp < consumer_warps) {
    ptx::grow_registers_to<Tile::consumer_registers>();
    multiply<Tile>(planes, stages, zeros, plane_barriers, stage_barriers, plane_unscale, column_unscale, bias,
                   output, warp / 4, warp, lane, p);
  } else {
    ptx::shrink_registers_to<Tile::producer_registers>();
    if (warp < consumer_warps + loader_warps) {
      load_input<Tile>(input, planes, plane_barriers, plane_unscale, warp - consumer_warps, lane, p, failed);
    } else if (lane == 0) {
      load_weights<Tile>(packed, stages, stage_barriers, p);
    }
  }
#endif
}

}  // namespace vox::cuda::conv::flat

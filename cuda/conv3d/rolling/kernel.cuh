#pragma once

// The product of plan.h (Note [The flat plane]) on Hopper, with sums that roll along d, by wgmma.
//
// What a block owns: a block of 16 warps is persistent and marches along d through tiles of 256, 384 or 512
// flat positions (plan.h). Warps 0 to 7, two warpgroups, multiply; warps 8 to 14 load the input and warp 15
// the weights, through two rings of shared memory with a pair of mbarriers (full, empty) for each slot.
// Blocks share no results: no atomics, and the bits never change.
//
// Rolling: an input plane serves taps_d depths of the output. A wgmma reads its rows of the input from shared
// memory each time, so one instruction multiplies them for all these depths. Its columns are (slot) x
// (channel), with as many slots of sums as there are taps along d. After each plane one depth is complete: it
// is stored, and its slot starts over with the depth taps_d further on. So all instructions have one shape
// and the same sums, and every plane is loaded once. Which tap a slot takes rotates from plane to plane, with
// period taps_d; `turn` is the rotation.
//
// How input planes lie in shared memory, and how they come there: window.cuh.
// Values that are not finite: see the Note in common/operands.cuh.

#include <voxgrad/cuda/conv3d/rolling/plan.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/conv3d/rolling/window.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::conv::rolling {

// ---- What a block owns ------------------------------------------------------------------------------------

/// How a kernel cuts the work: `tiles` of 64 positions for each of the two warpgroups.
template <class Storage_, class Operand_, int channels_, int taps_d_, int tiles_>
struct Tile {
  using Storage = Storage_;
  using Operand = Operand_;
  using Element = typename Operand::Element;
  static constexpr int tiles = tiles_, positions = 128 * tiles, channels = channels_, taps_d = taps_d_;
  static constexpr int columns = taps_d * channels;     // of an instruction
  static constexpr int granule = 16 / sizeof(Element);  // channels
  static constexpr int k_block_granules = 2,
                       k_block_channels = k_block_granules * granule;  // k of one instruction
  static constexpr int tap_bytes = columns * 32;

  static constexpr int sums = tiles * columns / 2;  // of a thread
  static constexpr int consumer_registers = sums > 144 ? 200 : sums > 96 ? (tiles == 3 ? 184 : 176) : 160;
  static constexpr int producer_registers = 256 - consumer_registers;
  // Loads of a lane in flight (16 for 16-bit tensors): as many as registers hold, if the products are quick.
  // (Narrow products of TF32 are limited by shared memory, and more loads cost time.)
  static constexpr int loads = sums > 144 || (granule == 4 && columns <= 48) ? 20 : 32;
  static constexpr TileShape host = shape_of({channels, taps_d, tiles}, sizeof(Storage), sizeof(Element));
  static constexpr int most_window = host.most_window;
  static_assert(sums <= 192 && channels % 8 == 0 && columns <= 256 && positions < most_window);

  // Results of a warp before they are stored: [channel of 8][position], with a pitch that avoids bank
  // conflicts, and the bias.
  static constexpr int warp_positions = 16 * tiles, results_pitch = warp_positions + 4;
  static constexpr int warp_results = 8 * results_pitch + channels;
  static_assert(results_bytes(host) == consumer_warps * warp_results * 4);
};

// ---- The producers of input -------------------------------------------------------------------------------

/// A warp's share of the windows: each plane of a march is loaded once. `Window` says what a lane loads
/// (window.cuh).
template <class Tile, class Window>
__device__ void load_input(const typename Tile::Storage* input, unsigned char* planes_memory,
                           Barriers& barriers, int warp, int lane, const Plan& plan) {
  const Product& p = plan.product;
  Window window;
  Ring ring{p.planes};
  const int loaders = min(loader_warps, p.planes);
  if (warp >= loaders) return;
  int turn = 0;  // the warp that loads the next plane

  for_each_march(plan, static_cast<int>(blockIdx.x), [&](const March& m) {
    const int first_position = m.tile * Tile::positions, first_image = place_of(first_position, p).image;
    const typename Tile::Storage* const source =
        input + (int64_t{first_image} * p.groups + m.group) * p.in_per_group * p.in_channel;
    int located = -1;  // the group of rows that `window` is for
    for (int v = m.first_plane; v < m.end_plane; ++v) {
      const int64_t cell = int64_t{v + p.d.base} * p.h.in_cells * p.w.in_cells;
      for_each_pass(p, [&](int k_block, int row_group) {
        if (turn == warp) {
          if (located != row_group)
            window.locate(first_position + row_group * p.rows * p.row_shift, first_image, lane, p);
          located = row_group;
          const int channel = k_block * Tile::k_block_channels;
          window.load(source + channel * p.in_channel + cell, p.in_per_group - channel,
                      reinterpret_cast<uint4*>(planes_memory + ring.slot * p.window * 32), lane, p,
                      [&] { ring.wait_empty(barriers); });
          ptx::fence_proxy_async();
          ptx::mbarrier_arrive(barriers.full[ring.slot]);
        }
        turn = turn + 1 == loaders ? 0 : turn + 1;
        ring.advance();
      });
    }
  });
}

// ---- The weights ------------------------------------------------------------------------------------------

// The weights are packed by a separate kernel, and loaded by one thread. Those of a tap (h, w) lie as
// [granule][column][16 bytes], columns being (slot) x (channel). The tap along d of a slot changes from plane
// to plane, with period taps_d: there is a copy of the weights for each such `turn`.

/// [group][block of channels][turn][k-block][tap (h, w)][granule][slot][channel][16 bytes].
template <class Tile>
struct Layout {
  Product p;
  int kernel_h, kernel_w;

  static constexpr int channels = Tile::granule;
  int64_t granules() const {
    return int64_t{p.groups} * p.channel_blocks * Tile::taps_d * p.k_blocks * p.h.taps * p.w.taps *
           (Tile::tap_bytes / 16);
  }
  constexpr Granule at(auto number) const {
    const auto [group, block, turn, k_block, h, w, granule, slot, column] =
        digits(number, {p.channel_blocks, Tile::taps_d, p.k_blocks, p.h.taps, p.w.taps,
                        Tile::k_block_granules, Tile::taps_d, Tile::channels});
    const int d = (turn - slot + Tile::taps_d) % Tile::taps_d;
    return {.group = group,
            .in = k_block * Tile::k_block_channels + granule * channels,
            .out = block * Tile::channels + column,
            .tap = kernel_tap(p, kernel_h, kernel_w, d, h, w),
            .to = int64_t{number} * 16};
  }
};

/// One thread loads all chunks of weights, in the order in which they are used.
template <class Tile>
__device__ void load_weights(const typename Tile::Element* packed, unsigned char* stages, Barriers& barriers,
                             const Plan& plan) {
  const Product& p = plan.product;
  Ring ring{p.stages};
  const int64_t all_taps = int64_t{p.h.taps} * p.w.taps;
  for_each_march(plan, static_cast<int>(blockIdx.x), [&](const March& m) {
    const int64_t first_turn = (int64_t{m.group} * p.channel_blocks + m.channel_block) * Tile::taps_d;
    for (int v = m.first_plane; v < m.end_plane; ++v) {
      const auto* const turn = reinterpret_cast<const unsigned char*>(packed) +
                               (first_turn + v % Tile::taps_d) * p.k_blocks * all_taps * Tile::tap_bytes;
      for_each_pass(p, [&](int k_block, int row_group) {
        const int64_t first_tap = k_block * all_taps + row_group * p.rows * p.w.taps;
        load_taps<Tile>(turn + first_tap * Tile::tap_bytes, taps_in(row_group, p), stages, ring, barriers, p);
      });
    }
  });
}

// ---- The store --------------------------------------------------------------------------------------------

// Tensor cores leave 8 positions of 4 channels to an instruction of a warp. Through shared memory the warp
// can store 32 consecutive positions. The code is short rather than fast: it runs only once for a plane, and
// it takes space in the instruction cache.

/// Stores the bias of a march behind the warp's results in shared memory.
template <class Tile>
__device__ __forceinline__ void keep_bias(float* results, const typename Tile::Storage* bias, const March& m,
                                          int lane, const Product& p) {
  const int first = m.channel_block * Tile::channels;
  __syncwarp();
  for (int c = lane; c < Tile::channels; c += 32)
    results[8 * Tile::results_pitch + c] =
        bias && first + c < p.out_per_group ? static_cast<float>(bias[m.group * p.out_per_group + first + c])
                                            : 0.0f;
}

/// Stores the sums of a slot, a depth of the march, through the warp's `results`.
template <class Tile>
__device__ __forceinline__ void store(const float (&sum)[Tile::tiles][Tile::columns / 2], int slot,
                                      float* results, typename Tile::Storage* output, const March& m,
                                      int depth, int warp, int lane, const Product& p) {
  using Storage = typename Tile::Storage;
  constexpr int tiles = Tile::tiles, pitch = Tile::results_pitch, positions = Tile::warp_positions;
  // This many instructions of the warp store `step` whole channels.
  constexpr int places = tiles == 4 ? 2 : tiles == 3 ? 3 : 1, step = places * 32 / positions;

  Storage* to[places];
  const float* from[places];
  int left[places];  // number of channels that the lane stores
#pragma unroll
  for (int i = 0; i < places; ++i) {
    const int position = (i * 32 + lane) % positions, channel = (i * 32 + lane) / positions;
    const Place at = place_of(m.tile * Tile::positions + warp * positions + position, p);
    const int first = m.channel_block * Tile::channels + channel;
    to[i] = output + ((int64_t{at.image} * p.groups + m.group) * p.out_per_group + first) * p.out_channel +
            (int64_t{depth} * p.h.cells + at.h) * p.w.cells + at.w;
    from[i] = results + channel * pitch + position;
    left[i] = at.image < p.batch && at.h < p.h.cells && at.w < p.w.cells ? p.out_per_group - first : 0;
  }

  float* const mine = results + lane % 4 * 2 * pitch + lane / 4;
#pragma unroll
  for (int n = 0; n < Tile::channels / 8; ++n) {
    __syncwarp();
    for_each_of(std::make_integer_sequence<int, Tile::taps_d>{}, [&](auto s) {
      if (s != slot) return;
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
            mine[e * pitch + (row * tiles + t) * 8] = sum[t][s * (Tile::channels / 2) + n * 4 + row * 2 + e];
        }
      }
    });
    __syncwarp();
#pragma unroll
    for (int c = 0; c < 8; c += step) {
#pragma unroll
      for (int i = 0; i < places; ++i) {
        const float bias = results[8 * pitch + n * 8 + c + (i * 32 + lane) / positions];
        if (n * 8 + c < left[i]) *to[i] = Storage(from[i][c * pitch] + bias);
        to[i] += step * p.out_channel;
      }
    }
  }
}

// ---- The consumers ----------------------------------------------------------------------------------------

/// A warpgroup's half of every tile.
///
/// Each warp has 16 * tiles consecutive positions, so that its stores are long: groups of 8 rows of an
/// instruction lie `tiles` such groups apart, and the next tile begins 8 positions further on.
template <class Tile>
__device__ void multiply(const unsigned char* planes_memory, const unsigned char* stages, float* results,
                         Barriers& plane_barriers, Barriers& stage_barriers,
                         const typename Tile::Storage* bias, typename Tile::Storage* output, int warpgroup,
                         int warp, int lane, const Plan& plan) {
  const Product& p = plan.product;
  constexpr int taps_d = Tile::taps_d, columns = Tile::columns, tiles = Tile::tiles;
  Ring plane_ring{p.planes}, stage_ring{p.stages};
  Released old_plane{plane_barriers}, old_stage{stage_barriers};
  float sum[tiles][columns / 2];  // in the tensor cores' order

  for_each_march(plan, static_cast<int>(blockIdx.x), [&](const March& m) {
    keep_bias<Tile>(results, bias, m, lane, p);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int s = 0; s < columns / 2; ++s) sum[t][s] = 0;
    }
    for (int v = m.first; v < m.end + taps_d - 1; ++v) {
      if (v >= m.first_plane && v < m.end_plane) {
        for_each_pass(p, [&](int, int row_group) {
          const int taps = taps_in(row_group, p);
          plane_ring.wait_full(plane_barriers);
          uint64_t a = ptx::shared_matrix(
              planes_memory + (plane_ring.slot * p.window * 2 + warpgroup * 64 * tiles) * 16, p.window * 16,
              128 * tiles);
          int column = 0;
          for (int first_tap = 0; first_tap < taps; first_tap += p.chunk) {
            const int chunk = min(p.chunk, taps - first_tap);
            stage_ring.wait_full(stage_barriers);
            uint64_t b =
                ptx::shared_matrix(stages + stage_ring.slot * p.chunk * Tile::tap_bytes, columns * 16, 128);
#pragma unroll 1
            for (int tap = 0; tap < chunk; ++tap) {
              ptx::wgmma_fence();
#pragma unroll
              for (int t = 0; t < tiles; ++t)
                ptx::wgmma<Tile::Operand::operand, columns>(sum[t], ptx::moved(a, t * 128), b);
              ptx::wgmma_commit();
              ptx::wgmma_wait<1>();  // for the previous tap
              old_plane.now();
              old_stage.now();
              b = ptx::moved(b, Tile::tap_bytes);
              a += p.column_shift;  // positions, which are as long as the unit of addresses
              if (++column == p.w.taps) {
                column = 0;
                a += p.row_shift - p.w.taps * p.column_shift;
              }
            }
            old_stage.later(stage_ring.slot);
            stage_ring.advance();
          }
          old_plane.later(plane_ring.slot);
          plane_ring.advance();
        });
      }
      ptx::wgmma_wait<0>();
      old_plane.now();
      old_stage.now();

      const int ready = v - (taps_d - 1), ready_slot = (v + 1) % taps_d;
      if (ready >= m.first) {
        store<Tile>(sum, ready_slot, results, output, m, ready, warpgroup * 4 + warp % 4, lane, p);
      }
      // Selects, because branches that write some of the sums make ptxas move all of them.
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int s = 0; s < columns / 2; ++s)
          sum[t][s] = s / (Tile::channels / 2) == ready_slot ? 0.0f : sum[t][s];
      }
    }
  });
}

// ---- The kernel -------------------------------------------------------------------------------------------

template <class Tile>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const typename Tile::Storage* __restrict__ input,
                   const typename Tile::Element* __restrict__ packed, const typename Tile::Storage* bias,
                   typename Tile::Storage* output, const __grid_constant__ Plan plan) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const Product& p = plan.product;
  extern __shared__ __align__(1024) unsigned char memory[];
  Barriers& plane_barriers = reinterpret_cast<Barriers*>(memory)[0];
  Barriers& stage_barriers = reinterpret_cast<Barriers*>(memory)[1];
  unsigned char* const results = memory + barrier_bytes;
  unsigned char* const stages = results + results_bytes(Tile::host);
  unsigned char* const planes = stages + p.stages * p.chunk * Tile::tap_bytes;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // uniform

  if (threadIdx.x == 0) {  // lanes load a plane; one thread loads a stage
    plane_barriers.init(p.planes, lanes, consumer_warps * lanes);
    stage_barriers.init(p.stages, 1, consumer_warps * lanes);
    ptx::mbarrier_init_done();
  }
  __syncthreads();

  if (warp < consumer_warps) {
    ptx::grow_registers_to<Tile::consumer_registers>();
    rolling::multiply<Tile>(planes, stages, reinterpret_cast<float*>(results) + warp * Tile::warp_results,
                            plane_barriers, stage_barriers, bias, output, warp / 4, warp, lane, plan);
  } else {
    ptx::shrink_registers_to<Tile::producer_registers>();
    if (warp < consumer_warps + loader_warps) {
      with_window<Tile>(p, [&]<class Window>() {
        rolling::load_input<Tile, Window>(input, planes, plane_barriers, warp - consumer_warps, lane, plan);
      });
    } else if (lane == 0) {
      rolling::load_weights<Tile>(packed, stages, stage_barriers, plan);
    }
  }
#endif
}

}  // namespace vox::cuda::conv::rolling

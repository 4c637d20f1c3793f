#pragma once

// How rolling_wgmma cuts the work, and its order, of consumers and producers alike.

#include <voxgrad/cuda/conv3d/rolling_plan.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_work.cuh>

namespace vox::cuda::rolling {

/// How a kernel cuts the work: `tiles` of 64 positions to each of two warpgroups.
template <class Storage_, class Operand_, int channels_, int taps_d_, int tiles_>
struct Tile {
  using Storage = Storage_;
  using Operand = Operand_;
  using Element = typename Operand::Element;
  static constexpr int tiles = tiles_, positions = 128 * tiles, channels = channels_, taps_d = taps_d_;
  static constexpr int parts = 1;
  static constexpr bool split = false, scaled = false;
  static constexpr int columns = taps_d * channels;                        // of an instruction
  static constexpr int granule = 16 / sizeof(Element);                     // channels
  static constexpr int slab_granules = 2, slab = slab_granules * granule;  // k of one instruction
  static constexpr int tap_bytes = columns * 32;

  static constexpr int sums = tiles * columns / 2;  // of a thread
  static constexpr int consumer_registers = sums > 144 ? 200 : sums > 96 ? (tiles == 3 ? 184 : 176) : 160;
  static constexpr int producer_registers = 256 - consumer_registers;
  // Of a lane, under way (16-bit tensors have 16): as many as registers hold where products are quick (with
  // narrow ones of TF32, whose time shared memory sets, they cost time).
  static constexpr int loads = sums > 144 || (granule == 4 && columns <= 48) ? 20 : 32;
  // A window's places are registers of the producers.
  static constexpr int most_window = tiles == 4 ? 800 : tiles == 3 ? 704 : 640;
  static constexpr FlatTile host{positions, 1,          channels, taps_d, slab, parts, is_16_bit_v<Storage>,
                                 false,     most_window};
  static_assert(sums <= 192 && channels % 8 == 0 && columns <= 256 && positions < most_window);

  // A warp's results on their way out: [channel of 8][position], with a pitch that keeps banks apart, and the
  // bias.
  static constexpr int warp_positions = 16 * tiles, results_pitch = warp_positions + 4;
  static constexpr int warp_results = 8 * results_pitch + channels;
  static constexpr int results_bytes = flat::consumer_warps * warp_results * 4;
};

/// f(march) for the block's piece of the steps, in order.
template <class F>
__device__ __forceinline__ void for_each_march(const RollingPlan& plan, F f) {
  const int64_t end = plan.cuts[blockIdx.x + 1];
  for (int64_t step = plan.cuts[blockIdx.x]; step < end;) {
    const March m = march_at(step, end, plan.product);
    f(m);
    step += m.end - m.first;
  }
}

}  // namespace vox::cuda::rolling

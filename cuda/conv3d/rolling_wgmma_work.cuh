#pragma once

// How rolling_wgmma cuts the work, and its order, of consumers and producers alike.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_work.cuh>
#include <voxgrad/cuda/conv3d/rolling_plan.h>

namespace vox::cuda::rolling {

/// How a kernel cuts the work: `tiles` of 64 positions to each of two warpgroups.
template <class Storage_, class Operand_, int channels_, int taps_d_, int tiles_>
struct Tile {
  using Storage = Storage_;
  using Operand = Operand_;
  using Element = typename Operand::Element;
  static constexpr int tiles = tiles_, positions = 128 * tiles, channels = channels_, taps_d = taps_d_;
  static constexpr int parts = 1;
  static constexpr bool split = false;
  static constexpr int columns = taps_d * channels;     // of an instruction
  static constexpr int granule = 16 / sizeof(Element);  // channels
  static constexpr int slab = 2 * granule;              // k of one instruction
  static constexpr int tap_bytes = columns * 32;

  static constexpr int sums = tiles * columns / 2;  // of a thread
  static constexpr int consumer_registers = sums > 144 ? 216 : sums > 96 ? 184 : 160;
  static constexpr int producer_registers = 256 - consumer_registers;
  static constexpr int most_window = sums > 144 ? 640 : 800;  // its places are registers of the producers
  static constexpr FlatTile host{positions, 1, channels, taps_d, slab, parts, most_window};
  static_assert(sums <= 192 && channels % 8 == 0 && columns <= 256 && positions < most_window);

  // A warp's results on their way out: [channel of 8][position], with a pitch that keeps banks apart.
  static constexpr int warp_positions = 16 * tiles, results_pitch = warp_positions + 4;
  static constexpr int results_bytes = flat::consumer_warps * 8 * results_pitch * 4;
};

/// f(march) for the block's share of the steps, in order.
template <class F>
__device__ __forceinline__ void for_each_march(const FlatProduct& p, F f) {
  const int64_t all = rolling_steps(p), end = all * (blockIdx.x + 1) / gridDim.x;
  for (int64_t step = all * blockIdx.x / gridDim.x; step < end;) {
    const March m = march_at(step, end, p);
    f(m);
    step += m.end - m.first;
  }
}

}  // namespace vox::cuda::rolling

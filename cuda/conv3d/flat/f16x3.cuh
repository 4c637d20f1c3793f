#pragma once

// How kernel.cuh differs where f32 is split into two f16 numbers: weights and products. (For the input, see
// LaneWindow::bring_scaled in window.cuh.)
//
//   x * 2^ex = high + low
//   w * 2^ew = high' + low'
//   x w * 2^(ex + ew) = high high' + high low' + low high'
//
// to within 2^-21. f16 has 11 bits but a narrow range. So the warp that brings a plane of a window (8
// channels) chooses its ex such that the largest value lies in [2^11, 2^15), and each output channel has an
// ew such that its largest weight lies in [2^14, 2^15). The low part of x is stored times 2^11, and
// multiplied by high' / 2^11. So scaled values down to 2^-14 have all their bits, and scaled weights down to
// 2^-3.
//
// A slab is 8 channels: a plane holds [high | low][position][16 bytes], as much as TF32 takes, and a tap of
// the weights [low' | high' / 2^11 | high'][column][16 bytes]. The k of an instruction is two granules of
// these:
//
//   high low' + low high'    one instruction for a tap: the plane's two granules, the tap's first two
//   high high'               one for two taps: the granules of an operand may lie any distance apart, so
//                            those of the plane lie at one tap's shift and the next's, those of the weights
//                            are the high' of both taps; a last odd tap is paired with zeros
//
// Sums move to f32 registers after some taps (Note [Truncating sums] in common/operands.cuh), and before a
// plane of another scale. They are multiplied by 2^-ex on the way.

#include <voxgrad/cuda/conv3d/flat/plan.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::conv::flat {

/// The taps of a chunk, one after the other.
struct TapWalk {
  int column;
  /// The distance in positions to the next tap.
  __device__ __forceinline__ int next(const Product& p) {
    if (++column < p.w.taps) return p.column_shift;
    column = 0;
    return p.row_shift - (p.w.taps - 1) * p.column_shift;
  }
};

/// The sums of a warpgroup: `sum` in the tensor cores' order and in the scale of its planes, and `total`, to
/// which sums move.
template <class Tile>
struct ScaledSums {
  float sum[2][Tile::depths][Tile::channels / 2], total[2][Tile::depths][Tile::channels / 2];
  float unscale = 1;  // of the planes in `sum`
  int taps = 0;       // in it, of the 8 channels of a slab

  template <class F>
  __device__ __forceinline__ void for_each(F f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < Tile::depths; ++j) {
#pragma unroll
        for (int s = 0; s < Tile::channels / 2; ++s) f(sum[half][j][s], total[half][j][s]);
      }
    }
  }
  __device__ __forceinline__ void clear() {
    for_each([](float& of_planes, float& all) { of_planes = all = 0; });
    taps = 0;
  }
  /// Moves `sum` to `total`, after waiting for all products.
  __device__ __forceinline__ void move() {
    ptx::wgmma_wait<0>();
    for_each([&](float& of_planes, float& all) {
      all = fmaf(of_planes, unscale, all);
      of_planes = 0;
    });
    taps = 0;
  }
};

/// How many taps a sum may hold before it moves (Note [Truncating sums] in common/operands.cuh). Fewer where
/// there are few products, because f32's own error is then smaller. An even number.
__device__ __forceinline__ int most_taps_in_sum(const Product& p) {
  const int64_t products = int64_t{p.in_per_group} * p.d.taps * p.h.taps * p.w.taps;
  return static_cast<int>(max(int64_t{2}, min(int64_t{20}, products / 72 * 2)));
}

/// Starts the products of plane q for outputs `low` to `high`, for a chunk of taps that begins in
/// `first_column`. The warpgroup's positions of the first tap begin at `plane`, the weights at `stage`;
/// `zeros` is as long as a part of a tap. The plane was multiplied by 1 / `unscale`.
template <class Tile, int q, int low, int high>
__device__ __forceinline__ void multiply_scaled_plane(ScaledSums<Tile>& sums, const unsigned char* plane,
                                                      const unsigned char* stage, const unsigned char* zeros,
                                                      int chunk, int first_column, float unscale,
                                                      int most_taps, const Product& p) {
  constexpr int channels = Tile::channels;
  // Neighbouring instructions use different sums, because each waits for the last one on its own sums.
  const auto multiply = [&](uint64_t a, uint64_t b) {
#pragma unroll
    for (int j = low; j <= high; ++j) {
      const uint64_t weights = ptx::moved(b, (Tile::taps_d - 1 - (q - j)) * channels * 16);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::wgmma<Tile::Operand::operand, channels>(sums.sum[half][j], ptx::moved(a, half * 8 * 16),
                                                     weights);
    }
  };

  TapWalk walk{first_column};
  uint64_t at = ptx::shared_matrix(plane, 0, 2 * 8 * 16), with = ptx::shared_matrix(stage, 0, 128);
  for (int left = chunk; left > 0;) {
    const int taps = min(left, most_taps);
    if (unscale != sums.unscale || sums.taps + taps > most_taps) sums.move();
    sums.unscale = unscale;
    sums.taps += taps;

    ptx::wgmma_fence();
    // k_bytes of a matrix is the distance from the high to the low part.
    TapWalk small_walk = walk;
    uint64_t a = at | static_cast<uint64_t>(p.window) << 16, b = with | uint64_t{Tile::part_bytes / 16} << 16;
#pragma unroll 1  // code that does not fit the instruction cache costs more than the loop
    for (int tap = 0; tap < taps; ++tap) {
      multiply(a, b);
      a += small_walk.next(p);  // positions, which are as long as the unit of addresses
      b = ptx::moved(b, Tile::tap_bytes);
    }
#pragma unroll 1
    for (int tap = 0; tap < taps; tap += 2) {
      // To the next tap. Behind a last odd tap: to the low part (any finite values would do) and zeros.
      int to_input = walk.next(p), to_weights = Tile::tap_bytes / 16;
      b = ptx::moved(with, 2 * Tile::part_bytes);
      if (tap + 1 == left) {
        to_input = p.window;
        to_weights =
            static_cast<int>(zeros - stage - 2 * Tile::part_bytes - (chunk - 1) * Tile::tap_bytes) / 16;
      }
      multiply(at | static_cast<uint64_t>(to_input) << 16, b | static_cast<uint64_t>(to_weights) << 16);
      at += to_input + walk.next(p);
      with = ptx::moved(with, 2 * Tile::tap_bytes);
    }
    ptx::wgmma_commit();
    left -= taps;
  }
}

}  // namespace vox::cuda::conv::flat

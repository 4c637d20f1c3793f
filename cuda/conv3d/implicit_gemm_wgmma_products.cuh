#pragma once

// The products of implicit_gemm_wgmma, and the output.

#include <type_traits>
#include <utility>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_f16x3.cuh>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_store.cuh>
#include <voxgrad/cuda/conv3d/ring.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::flat {

template <class F, int... q>
__device__ __forceinline__ void for_each_of(std::integer_sequence<int, q...>, F f) {
  (f(std::integral_constant<int, q>{}), ...);
}

/// What a warpgroup has added up.
template <class Tile>
struct Sums {
  float sum[2][Tile::depths][Tile::channels / 2];  // in the tensor cores' order
  float total[2][Tile::split ? Tile::depths : 1][Tile::split ? Tile::channels / 2 : 1];  // what sums moved to
};

/// A warpgroup's half of every tile. Its positions are blocks of 8, even ones in one accumulator and odd ones
/// in the other, so that a warp's rows of both are 32 neighbours.
template <class Tile>
__device__ void multiply(const unsigned char* planes_memory, const unsigned char* stages,
                         const unsigned char* zeros, Barriers& plane_barriers, Barriers& stage_barriers,
                         const float* plane_unscale, const float* column_unscale,
                         const typename Tile::Storage* bias, typename Tile::Storage* output, int warpgroup,
                         int warp, int lane, const FlatProduct& p) {
  using Storage = typename Tile::Storage;
  constexpr int channels = Tile::channels, depths = Tile::depths;
  constexpr int own_positions = Tile::positions / 2;
  Ring plane_ring{p.planes}, stage_ring{p.stages};
  Released old_plane{plane_barriers}, old_stage{stage_barriers};
  std::conditional_t<Tile::scaled, ScaledSums<Tile>, Sums<Tile>> sums;
  auto& sum = sums.sum;
  auto& total = sums.total;
  [[maybe_unused]] const int most_taps = Tile::scaled ? most_taps_in_sum(p) : 0;

  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at<Tile>(i, p);
    const int first_channel = job.channel_block * channels + lane % 4 * 2;
    float first[channels / 8][2];  // bias of the thread's columns, two of every 8
    const auto load_bias = [&] {
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
    };
    if constexpr (!Tile::split) load_bias();  // early, but where sums need all registers
    if constexpr (Tile::scaled) {
      sums.clear();
    } else {
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
          const unsigned char* const plane =
              planes_memory +
              (at.slot * p.window * Tile::plane_granules + warpgroup * own_positions + first_shift) * 16;
          if constexpr (Tile::scaled) {
            multiply_scaled_plane<Tile, q, low, high>(sums, plane, stage, zeros, chunk, first_column,
                                                      plane_unscale[at.slot], most_taps, p);
            ptx::wgmma_wait<1>();
          } else {
            uint64_t a = ptx::shared_matrix(plane, p.window * 16, 2 * 8 * 16);
            uint64_t b = ptx::shared_matrix(stage, Tile::taps_d * channels * 16, 128);
            int column = first_column;
            ptx::wgmma_fence();
            for (int tap = 0; tap < chunk; ++tap) {
#pragma unroll
              for (int j = low; j <= high; ++j) {
                const uint64_t weights = ptx::moved(b, (Tile::taps_d - 1 - (q - j)) * channels * 16);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                  const uint64_t input = ptx::moved(a, half * 8 * 16);
                  const auto product = [&](uint64_t x, uint64_t w, bool accumulate) {
                    ptx::wgmma<Tile::Operand::operand, channels>(sum[half][j], x, w, accumulate);
                  };
                  if constexpr (Tile::split) {
                    const uint64_t low_weights = ptx::moved(weights, Tile::part_bytes);
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
          }
          old_plane.now();
          old_stage.now();
          if (last) old_plane.later(at.slot);
          if constexpr (Tile::split && !Tile::scaled) old_plane.now();  // no product is under way
          at.advance();
        });
        old_stage.now();  // only if there was no plane
        old_stage.later(stage_ring.slot);
        stage_ring.advance();
      }
      plane_ring = at;
    });
    if constexpr (Tile::scaled)
      sums.move();
    else
      ptx::wgmma_wait<0>();
    old_plane.now();
    old_stage.now();
    if constexpr (Tile::split) load_bias();
    if constexpr (Tile::scaled) {
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
    }

    const int64_t out_plane = int64_t{p.out_h} * p.out_w;
    const int64_t out_depth = int64_t{p.d.tap_step} * p.d.out_step * out_plane;
    const int channel = job.channel_block * channels;
    const RunStore<Storage> store(output + (int64_t{job.group} * p.out_per_group + channel) * p.out_channel +
                                      (int64_t{job.first_depth} * p.d.out_step + p.d.out_base) * out_plane,
                                  p.out_per_group - channel,
                                  job.tile * Tile::positions + warpgroup * own_positions + warp % 4 * 32,
                                  lane, p);
#pragma unroll
    for (int j = 0; j < depths; ++j) {
      if (j >= job.depths) break;
#pragma unroll
      for (int n = 0; n < channels / 8; ++n)
        store.eight(n * 8, j * out_depth, p, [&](int block, int e) {
          const int half = block % 2, s = n * 4 + block / 2 * 2 + e;
          if constexpr (Tile::split)
            return total[half][j][s] + first[n][e];
          else
            return sum[half][j][s] + first[n][e];
        });
    }
  }
}

}  // namespace vox::cuda::flat

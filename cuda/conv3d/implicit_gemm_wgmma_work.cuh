#pragma once

// How implicit_gemm_wgmma cuts the work, and its order, of consumers and producers alike.

#include <type_traits>

#include <voxgrad/cuda/conv3d/flat_product.h>
#include <voxgrad/cuda/conv3d/wgmma_operands.cuh>

namespace vox::cuda::flat {

/// How a kernel cuts the work.
template <class Storage_, class Operand_, int channels_, int depths_, int taps_d_>
struct Tile {
  using Storage = Storage_;
  using Operand = Operand_;
  using Element = typename Operand::Element;
  static constexpr int positions = 256, channels = channels_, depths = depths_, taps_d = taps_d_;
  static constexpr int parts = Operand::parts;
  static constexpr bool split = parts > 1;
  static constexpr bool scaled = std::is_same_v<Operand, F16x3>;
  static constexpr int granule = 16 / sizeof(Element);  // channels
  static constexpr int slab_granules = scaled ? 1 : 2;  // two are the k of one instruction
  static constexpr int slab = slab_granules * granule;  // channels
  static constexpr int plane_granules = slab_granules * parts;
  static constexpr int planes = depths + taps_d - 1;  // that a tile reads at one group of taps
  static constexpr int part_bytes = taps_d * channels * 16 * slab_granules;  // of the weights of a tap
  static constexpr int tap_bytes = part_bytes * (scaled ? 3 : parts);
  static constexpr int zero_bytes = scaled ? part_bytes : 0;  // shared memory beyond that of the plan
  static constexpr FlatTile host{
      positions, depths, channels, taps_d, slab, plane_granules / 2, is_16_bit_v<Storage>, scaled};

  static constexpr int sums = depths * channels * parts;  // of a thread: two 64 x (depths * channels) tiles
  static constexpr int consumer_registers = sums > 176 ? 216 : sums > 144 ? 208 : 192;
  static constexpr int producer_registers = 256 - consumer_registers;
  static constexpr int loads = scaled                    ? (producer_registers < 64 ? 16 : 32)
                               : producer_registers < 48 ? 16
                                                         : 20;  // of a lane, under way: as registers allow
  static_assert(sums <= 192 && channels % 8 == 0);
};

constexpr int consumer_warps = 8, loader_warps = 7;
constexpr int block_threads = 32 * (consumer_warps + loader_warps + 1);

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

/// A position of the flat plane.
struct Place {
  int image, h, w;
};
__device__ __forceinline__ Place place_of(int flat, const FlatProduct& p) {
  const int row = p.pitch_w.quotient(flat), image = p.pitch_h.quotient(row);
  return {image, row - image * p.pitch_h.divisor, flat - row * p.pitch_w.divisor};
}

}  // namespace vox::cuda::flat

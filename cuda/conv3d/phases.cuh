#pragma once

#include <cstdint>

// conv3d and conv_transpose3d phase by phase, as implicit_gemm_mma.cuh multiplies them.
//
// Along an axis, cell j and tap t of a product read input cell j * in_step + in_base + t * in_tap_step, and
// write output cell j * out_step + out_base. For conv3d that is the index rule as it stands. conv_transpose3d
// splits into phases: the outputs o with one value of o modulo the stride have the same
// live taps, every stride / gcd(stride, dilation)-th, whose input cells lie dilation / gcd apart. So every
// phase is a product of its own with in_step 1 and no tap that misses; a phase without taps writes the bias
// alone.

namespace vox::cuda::mma {

constexpr int most_halo = 8;   // cells beyond a block's own that a tile of input has
constexpr int most_chunk = 8;  // taps along W that share a tile

/// One axis of the problem, for all phases.
struct Axis {
  int in_cells, out_cells, kernel;
  int stride, padding, dilation;
  int phases;               // numbered by their first output
  int tap_pace, cell_pace;  // conv_transpose3d: between live taps of a phase, in taps and in input cells
};

struct Problem {
  Axis axis[3];
  bool transposed;
  int64_t batch, groups, in_per_group, out_per_group;
  int64_t in_cells, out_cells, taps;
  int64_t phases, tiles;  // of the largest phase
  int chunk;              // of taps, likewise
  int64_t blocks_n;       // of channels in a group
  int64_t slices;         // of channels in a group
};

/// One axis of one phase: its cells j and live taps t, in the order of the input cells that they read.
struct PhaseAxis {
  int cells, taps;
  int in_step, in_base, in_tap_step;
  int out_step, out_base;
  int first_tap, tap_pace;  // in the kernel
  int chunk;                // taps that share a tile
  int pitch;                // from a row of cells to the next, counting those that are dropped
};

/// The taps that one tile serves.
__host__ __device__ inline int chunk_of(const PhaseAxis& p) {
  if (p.in_step != 1 || p.taps <= 1) return 1;
  return min(min(p.taps, most_chunk), 1 + most_halo / p.in_tap_step);
}

/// A tap `halo` cells further on than the first may leave its row. It then has to read a zero, as it would
/// outside the input, or a cell of the dropped ones.
__host__ __device__ inline int pitch_of(const PhaseAxis& p, int in_cells) {
  const int halo = (p.chunk - 1) * p.in_tap_step;
  if (p.chunk < p.taps) return p.cells + halo;
  return min(p.cells + halo, max(max(p.cells, in_cells - p.in_base), p.cells + halo + p.in_base));
}

__host__ __device__ inline PhaseAxis phase_axis(const Axis& a, bool transposed, int phase) {
  PhaseAxis p{a.out_cells, a.kernel, a.stride, -a.padding, a.dilation, 1, 0, 0, 1, 1, 0};
  if (transposed) {
    p = {(a.out_cells - 1 - phase) / a.stride + 1,
         0,
         1,
         0,
         a.cell_pace,
         a.stride,
         phase,
         0,
         -a.tap_pace,
         1,
         0};
    for (int k = 0; k < a.kernel && k < a.tap_pace; ++k) {
      const int distance = phase + a.padding - k * a.dilation;
      if (distance % a.stride) continue;
      p.taps = (a.kernel - 1 - k) / a.tap_pace + 1;
      p.first_tap = k + (p.taps - 1) * a.tap_pace;  // the last one reads the lowest cell
      p.in_base = distance / a.stride - (p.taps - 1) * a.cell_pace;
      break;
    }
  }
  p.chunk = chunk_of(p);
  p.pitch = pitch_of(p, a.in_cells);
  return p;
}

struct Phase {
  PhaseAxis d, h, w;
};

}  // namespace vox::cuda::mma

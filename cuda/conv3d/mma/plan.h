#pragma once

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>
#include <cstdint>

namespace vox::cuda::conv::mma {

// Along an axis, cell j and tap t of a product read input cell j * in_step + in_base + t * in_tap_step, and
// write output cell j * out_step + out_base. For conv3d that is the index rule itself. conv_transpose3d
// splits into phases (Note [Lattices] in ops/conv3d_lattice.h). All outputs of a phase have the same live
// taps, every stride / gcd(stride, dilation)-th, whose input cells lie dilation / gcd apart. So every phase
// is a product of its own with in_step 1 and only live taps. A phase without taps writes only the bias.

// There may be any number of phases, so blocks compute them when they need them.

constexpr int block_cells = 128;  // of a phase, that a block computes
constexpr int slice = 8;          // channels: k of one instruction
constexpr int most_halo = 8;      // cells of an input tile beyond the block's own
constexpr int most_chunk = 8;     // taps along w that share a tile

/// One axis of the problem, for all phases.
struct Axis {
  int in_cells, out_cells, kernel;
  int stride, padding, dilation;
  int phases;  ///< numbered by their first output
  int tap_pace,
      cell_pace;  ///< conv_transpose3d: distance of live taps of a phase, in taps and in input cells
};

struct Problem {
  Axis axis[3];
  bool transposed;
  int64_t batch, groups, in_per_group, out_per_group;
  int64_t in_cells, out_cells, taps;
  int64_t phases, tiles;  ///< of the largest phase
  int chunk;              ///< of taps, for the largest phase
  int64_t blocks_n;       ///< of channels in a group
  int64_t slices;         ///< of channels in a group
};

/// One axis of one phase: its cells j and live taps t, in the order of the input cells that the taps read.
struct PhaseAxis {
  int cells, taps;
  int in_step, in_base, in_tap_step;
  int out_step, out_base;
  int first_tap, tap_pace;  ///< in the kernel
  int chunk;                ///< taps that share a tile
  int pitch;                ///< from one row of cells to the next, including dropped cells
};

struct Phase {
  PhaseAxis d, h, w;
};

constexpr PhaseAxis phase_axis(const Axis& a, bool transposed, int phase) {
  PhaseAxis p{};
  if (transposed) {
    const auto [tap, cell] = first_touching_tap(phase, a.kernel, a.stride, a.padding, a.dilation, a.tap_pace);
    p.cells = (a.out_cells - 1 - phase) / a.stride + 1;
    p.in_step = 1, p.in_tap_step = a.cell_pace;
    p.out_step = a.stride, p.out_base = phase, p.tap_pace = -a.tap_pace;
    if (tap < a.kernel) {
      const int last = (a.kernel - 1 - tap) / a.tap_pace;  // the tap that reads the lowest cell
      p.taps = last + 1, p.first_tap = tap + last * a.tap_pace, p.in_base = cell - last * a.cell_pace;
    }
  } else {
    p.cells = a.out_cells, p.taps = a.kernel;
    p.in_step = a.stride, p.in_base = -a.padding, p.in_tap_step = a.dilation;
    p.out_step = 1, p.tap_pace = 1;
  }
  // int{}: std::min takes references, and device code has none to a constant of a namespace.
  p.chunk = p.in_step == 1 && p.taps > 1
                ? std::min(std::min(p.taps, int{most_chunk}), 1 + most_halo / p.in_tap_step)
                : 1;
  const int halo = (p.chunk - 1) * p.in_tap_step;
  p.pitch = p.chunk < p.taps ? p.cells + halo : row_pitch(p.cells, a.in_cells, p.in_base, halo);
  return p;
}

/// The problem for blocks of `n_tiles` * 8 output channels. The caller knows that axes fit 32 bits.
Problem problem(const Conv3dGeometry& g, bool transposed, int n_tiles);

}  // namespace vox::cuda::conv::mma

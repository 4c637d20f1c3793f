#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include <voxgrad/ops/conv3d_geometry.h>

// Note [Lattices]
//
// conv3d is one dense correlation: output cell j and tap m read the input cell j * stride - padding + m *
// dilation. conv_transpose3d is several. A "phase" is the set of outputs o with the same remainder of (o +
// padding) modulo the stride. With h = gcd(dilation, stride), only every (stride/h)-th tap touches a phase,
// and from one of these taps to the next the coarse cell falls by dilation/h. So each phase is a dense
// correlation too, with stride 1 and a kernel of its own, and no output is multiplied with a tap that does
// not touch it. One Lattice per axis describes either op.

namespace vox {

/// One axis of a dense correlation between a subset of the output cells and of the taps.
struct Lattice {
  int64_t outputs;              ///< how many output cells
  int64_t out_first, out_step;  ///< output j is cell out_first + j * out_step
  int64_t taps;                 ///< how many taps touch them
  int64_t tap_first, tap_step;  ///< tap m is tap tap_first + m * tap_step of the kernel
  int64_t in_first, in_step;    ///< output j and tap m read the cell
  int64_t in_per_tap;           ///<   in_first + j * in_step + m * in_per_tap
  int64_t input;                ///< cells of the input; cells outside count as 0
  int64_t output;               ///< cells of the output

  int64_t input_cell(int64_t j, int64_t m) const { return in_first + j * in_step + m * in_per_tap; }

  /// The same with its taps in the order of the input cells that they read.
  Lattice ascending() const {
    if (in_per_tap > 0) return *this;
    Lattice reversed = *this;
    reversed.tap_first += (taps - 1) * tap_step, reversed.tap_step = -tap_step;
    reversed.in_first += (taps - 1) * in_per_tap, reversed.in_per_tap = -in_per_tap;
    return reversed;
  }

  struct Range {
    int64_t first, last;
    friend bool operator==(const Range&, const Range&) = default;
  };

  /// The taps [first, last) that read cells inside the input for output j.
  Range taps_inside(int64_t j) const {
    const auto inside = [&](int64_t m) { return input_cell(j, m) >= 0 && input_cell(j, m) < input; };
    Range range{0, taps};
    while (range.first < taps && !inside(range.first)) ++range.first;
    while (range.last > range.first && !inside(range.last - 1)) --range.last;
    return range;
  }
};

using Lattices = std::array<Lattice, 3>;

/// The only lattice of conv3d on one axis.
inline Lattice conv3d_lattice(const Conv3dGeometry& g, int64_t axis) {
  return {.outputs = g.small[axis],
          .out_first = 0,
          .out_step = 1,
          .taps = g.kernel[axis],
          .tap_first = 0,
          .tap_step = 1,
          .in_first = -g.padding[axis],
          .in_step = g.stride[axis],
          .in_per_tap = g.dilation[axis],
          .input = g.big[axis],
          .output = g.small[axis]};
}
inline Lattices conv3d_lattices(const Conv3dGeometry& g) {
  return {conv3d_lattice(g, 0), conv3d_lattice(g, 1), conv3d_lattice(g, 2)};
}

/// The phases of conv_transpose3d on one axis that a tap touches, in ascending order of output. There are at
/// most as many as taps, however large the stride is. Outputs in no phase are touched by no tap.
inline std::vector<Lattice> conv_transpose3d_lattices(const Conv3dGeometry& g, int64_t axis) {
  const int64_t s = g.stride[axis], p = g.padding[axis], d = g.dilation[axis], kernel = g.kernel[axis];
  const int64_t h = std::gcd(d, s), tap_step = s / h;
  std::vector<Lattice> phases;
  for (int64_t k = 0; k < std::min(kernel, tap_step); ++k) {  // k: the first tap of each phase
    const int64_t rest = (k * d - p) % s, o = rest < 0 ? rest + s : rest;
    if (o >= g.big[axis]) continue;
    phases.push_back({.outputs = (g.big[axis] - 1 - o) / s + 1,
                      .out_first = o,
                      .out_step = s,
                      .taps = (kernel - 1 - k) / tap_step + 1,
                      .tap_first = k,
                      .tap_step = tap_step,
                      .in_first = (o + p - k * d) / s,
                      .in_step = 1,
                      .in_per_tap = -(d / h),
                      .input = g.small[axis],
                      .output = g.big[axis]});
  }
  std::sort(phases.begin(), phases.end(),
            [](const Lattice& a, const Lattice& b) { return a.out_first < b.out_first; });
  return phases;
}

/// Those of either op on one axis, with ascending taps.
inline std::vector<Lattice> ascending_lattices(const Conv3dGeometry& g, bool transposed, int64_t axis) {
  auto phases = transposed ? conv_transpose3d_lattices(g, axis) : std::vector{conv3d_lattice(g, axis)};
  for (Lattice& phase : phases) phase = phase.ascending();
  return phases;
}

/// The same for one output at a time, where kernels have no table of phases: the first tap that touches
/// output o of conv_transpose3d, and the cell that it reads, which may be outside. No tap (tap == kernel) if
/// none does. The next taps follow at a distance of tap_step = stride / gcd(dilation, stride).
template <class Index>
struct TouchingTap {
  Index tap, cell;
};
template <class Index>
constexpr TouchingTap<Index> first_touching_tap(Index o, Index kernel, Index stride, Index padding,
                                                Index dilation, Index tap_step) {
  Index k = 0;
  while (k < kernel && k < tap_step) {
    const Index distance = o + padding - k * dilation;
    if (distance % stride == 0) return {k, distance / stride};
    ++k;
  }
  return {kernel, 0};
}

}  // namespace vox

#pragma once

#include <voxgrad/ops/conv3d_geometry.h>

#include <algorithm>
#include <cstdint>
#include <vector>

// The taps of an axis as strided_plan.cpp sees them: as shifts on the coarse grid, of phases of the fine one.

namespace vox::cuda {

/// The taps of one axis, as phases and shifts.
struct AxisTaps {
  int64_t stride, padding, dilation, kernel, sign;  // shift = sign * q
  int64_t phases;                                   // that exist on the fine side

  /// The tap that is this shift seen from this phase, or -1.
  int64_t tap(int64_t phase, int64_t shift) const {
    const int64_t distance = phase + padding + sign * shift * stride;
    return distance >= 0 && distance % dilation == 0 && distance / dilation < kernel ? distance / dilation
                                                                                     : -1;
  }
  struct Range {
    int64_t low = 0, high = -1;
    int64_t count() const { return high - low + 1; }
  };
  /// The shifts of a phase; empty if it is dead.
  Range shifts(int64_t phase) const {
    Range range;
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t n = k * dilation - padding, r = (n % stride + stride) % stride;
      if (r != phase) continue;
      const int64_t shift = sign * ((n - r) / stride);
      if (range.count() == 0) range = {shift, shift};
      range = {std::min(range.low, shift), std::max(range.high, shift)};
    }
    return range;
  }
  std::vector<int64_t> alive() const {
    std::vector<int64_t> list;
    for (int64_t r = 0; r < phases; ++r)
      if (shifts(r).count() > 0) list.push_back(r);
    return list;
  }
  Range shifts(const std::vector<int64_t>& of) const {
    Range range;
    for (const int64_t r : of) {
      const Range one = shifts(r);
      range = range.count() == 0 ? one : Range{std::min(range.low, one.low), std::max(range.high, one.high)};
    }
    return range.count() ? range : Range{0, 0};
  }
};

inline AxisTaps axis_taps(const Conv3dGeometry& g, bool transposed, int64_t axis) {
  return {g.stride[axis], g.padding[axis],     g.dilation[axis],
          g.kernel[axis], transposed ? -1 : 1, std::min(g.stride[axis], g.big[axis])};
}

/// The taps as items of both phases see them (StridedForm::wide): of cells that begin with the second phase,
/// where more shifts then have taps of both.
inline AxisTaps pair_taps(const AxisTaps& w) {
  AxisTaps moved = w;
  --moved.padding;
  const std::vector<int64_t> both{0, 1};
  return moved.shifts(both).count() < w.shifts(both).count() ? moved : w;
}

}  // namespace vox::cuda

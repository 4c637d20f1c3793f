#pragma once

#include <array>
#include <cstdint>

#include <voxgrad/core/host_device.h>

// One axis of interpolate(), for the op and its kernels.
//
// Interpolation in three dimensions is interpolation along one axis after the other, in any order. tap()
// gives the index and weight of an output cell. Host and device share it, so no table has to be copied to the
// device, and forward and adjoint use exactly the same numbers.

namespace vox {

/// What one output cell reads: cell `index` with weight 1 - weight_next, and cell index + 1 with weight_next.
/// weight_next > 0 only if index + 1 exists.
struct InterpolateTap {
  int64_t index;
  double weight_next;
};

/// The coordinate map of one axis: position = (o + offset) * numerator / denominator - offset.
struct InterpolateAxis {
  int64_t in = 1, out = 1;
  double numerator = 1, denominator = 1;
  double offset = 0;    ///< 0.5 where cells are compared by their centres, else 0
  bool nearest = true;  ///< takes the cell at floor(position); else blends it with the next

  VOX_HOST_DEVICE InterpolateTap tap(int64_t o) const {
    // No product is added to anything directly, so nvcc cannot fuse two of these and round unlike the CPU.
    const double position = (static_cast<double>(o) + offset) * numerator / denominator - offset;
    if (!(position > 0)) return {0, 0};
    if (position >= static_cast<double>(in - 1)) return {in - 1, 0};
    const auto index = static_cast<int64_t>(position);
    return {index, nearest ? 0 : position - static_cast<double>(index)};
  }

  /// The first output cell whose tap has index >= i (out if there is none). Taps rise with o. The loops
  /// correct the inverse of the map, which rounding may move by one or two cells.
  VOX_HOST_DEVICE int64_t first_output(int64_t i) const {
    if (i <= 0) return 0;
    double guess = numerator > 0 ? (static_cast<double>(i) + offset) * denominator / numerator - offset : 0;
    if (guess > static_cast<double>(out)) guess = static_cast<double>(out);
    int64_t o = guess > 0 ? static_cast<int64_t>(guess) : 0;
    while (o > 0 && tap(o - 1).index >= i) --o;
    while (o < out && tap(o).index < i) ++o;
    return o;
  }
};

using InterpolateAxes = std::array<InterpolateAxis, 3>;  // D, H, W

}  // namespace vox

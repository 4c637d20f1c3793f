#pragma once

#include <array>
#include <cstdint>

#include <voxgrad/core/host_device.h>

// How interpolate() and its kernels see one axis.
//
// Interpolation in three dimensions is interpolation along W, then H, then D: each axis is one pass over a
// tensor seen as (outer, axis, inner), and the adjoint is the adjoint passes in reverse order. Index and
// weight of an output cell come from tap(), which host and device share: no table has to reach the device,
// and forward and adjoint use the same numbers to the last bit.

namespace vox {

/// One output cell's share of the input: weight 1 - weight_next on `index`, weight_next on index + 1.
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
  bool nearest = true;  ///< take the cell at floor(position), else blend it with the next

  VOX_HOST_DEVICE InterpolateTap tap(int64_t o) const {
    // A sum, a product, a quotient, a difference: nothing that nvcc could fuse and so round unlike the CPU.
    const double position = (static_cast<double>(o) + offset) * numerator / denominator - offset;
    if (!(position > 0)) return {0, 0};
    if (position >= static_cast<double>(in - 1)) return {in - 1, 0};
    const auto index = static_cast<int64_t>(position);
    return {index, nearest ? 0 : position - static_cast<double>(index)};
  }

  /// The first output cell whose tap has index >= i (out if there is none). Taps rise with o; the inverse of
  /// the map is a guess that rounding may miss by one or two.
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

#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/interpolate.h>

namespace vox {

struct GridSampleOptions {
  detail::ByName by_name{};
  using Mode = InterpolateOptions::Mode;
  enum class Padding { zeros, border, reflection };
  Mode mode = Mode::linear;
  Padding padding = Padding::zeros;
  bool align_corners = false;
};

/// Reads (N, C, D, H, W) or (N, C, H, W) at any points, with the rules of torch.nn.functional.grid_sample.
/// The grid is (N, D', H', W', 3) with points (w, h, d), or (N, H', W', 2) with points (w, h); the result is
/// (N, C, D', H', W') or (N, C, H', W'). A coordinate g stands on an axis of n cells for the position
///
///   ((g + 1) n - 1) / 2       -1 and 1 are the outer faces of the first and the last cell
///   (g + 1) / 2 (n - 1)       with align_corners: they are its centre and that of the last cell
///
/// `nearest` takes the cell at the rounded position (half to even), `linear` blends the two neighbours on
/// each axis. Padding says what is beyond the volume: zeros; the cells of its border; or the volume mirrored,
/// at its outer faces or, with align_corners, at the centres of its border cells. A NaN reads 0 with zeros,
/// else the first cell. A cell with weight 0 does not count, even if it is infinite or NaN.
///
/// Differentiable any number of times, in the input and, with `linear`, in the grid; where the result has a
/// kink, the gradient is that of one side. The gradients use no atomics, so they have the same bits every
/// time. Under autocast, of f32 and a 16-bit dtype both operands become f32.
///
/// Throws ShapeError unless the shapes are as above, with D, H, W >= 1 and at most 2^30 cells; DTypeError
/// unless both are of one floating dtype, DeviceError if they are on two devices.
Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleOptions& options = {});

/// The grid of an affine map, for a result of `size`, (N, C, D, H, W) or (N, C, H, W): the point of a cell is
/// theta * (w, h, d, 1), with theta (N, 3, 4), or (N, 2, 3) without d. w, h and d are the coordinates of the
/// cell's centre: from -1 + 1 / n to 1 - 1 / n on an axis of n cells; with align_corners from -1 to 1, or 0
/// if n is 1. Floating dtypes; differentiable any number of times.
///
/// Throws ShapeError for other shapes and for sizes < 1 (N and C may be 0), DTypeError unless theta is
/// floating.
Tensor affine_grid(const Tensor& theta, const Shape& size, Flag align_corners = false);

}  // namespace vox

#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>

// Volumes on a grid of another resolution, as nnU-Net v2 makes them.
namespace vox {

struct ResampleOptions {
  vox::detail::ByName by_name{};
  int64_t order = 3;  ///< of the spline: 3, 1 (linear) or 0 (nearest)
  bool clip = true;   ///< limits results to the range of the values that they come from
  /// An axis (0 is the first of `size`) that is resampled after the others, by its own order, as nnU-Net does
  /// where the spacing along it is more than 3 times the smallest. Clipping is then slice by slice.
  std::optional<int64_t> separate_axis = {};
  int64_t separate_order = 0;
};

/// x (..., D, H, W), (..., H, W) or (..., W) with the sizes `size` for its last dimensions: the spline
/// through its cells at the centres of the new ones, (i + 0.5) * old / new - 0.5, where the edge cells
/// continue beyond the edge. Nothing is smoothed before. It equals skimage.transform.resize(mode="edge",
/// anti_aliasing=False), which is scipy.ndimage.zoom(mode="nearest", grid_mode=True) and, with `clip`,
/// limits. Computed in f64 on the CPU; the result is on x's device.
///
/// Throws DTypeError unless x is f32 or f64, ShapeError unless size has 1 to 3 positive sizes and x as many
/// dimensions and cells, ValueError for options outside their range.
Tensor resample(const Tensor& x, const Shape& size, const ResampleOptions& options = {});

/// The same for labels (u8 or i64): each label's mask is resampled, by options.order, and a cell gets the
/// label whose mask is largest there; of equal ones the label of the nearest cell, or else the smallest. This
/// is the rule of nnU-Net with batchgenerators 0.25.5.
Tensor resample_labels(const Tensor& labels, const Shape& size,
                       const ResampleOptions& options = {.order = 1});

}  // namespace vox

#pragma once

#include <vector>

#include <voxgrad/core/tensor.h>

// How well a mask fits another. Masks are bool or u8 tensors of 1 to 3 dimensions, on any device; everything
// but 0 is inside. `spacing` has the distance of neighbouring cells along each axis, in the axes' order; {}
// means 1. All functions throw DTypeError or ShapeError for other masks, and ValueError for a spacing that is
// not positive and finite.
namespace vox::nn {

/// The Euclidean distance (f64, on the mask's device) of each cell to the nearest cell outside the mask: 0
/// there, and infinite if nothing is outside, as scipy.ndimage.distance_transform_edt otherwise. Exact, axis
/// by axis (Felzenszwalb and Huttenlocher, "Distance transforms of sampled functions", 2012): the time is
/// linear in the number of cells.
Tensor distance_transform(const Tensor& mask, const std::vector<double>& spacing = {});

/// 2 |a and b| / (|a| + |b|); NaN if both are empty, so that means can leave such a case out (as nnU-Net's).
double dice_score(const Tensor& a, const Tensor& b);

/// The distance from each cell at one mask's surface to the nearest cell at the other's. A cell is at the
/// surface if a face of it has the outside, or the tensor's edge, on its other side. If the other mask is
/// empty the distances are infinite.
struct SurfaceDistances {
  std::vector<double> from_a, from_b;
};
SurfaceDistances surface_distances(const Tensor& a, const Tensor& b, const std::vector<double>& spacing = {});

/// The percentile of the distances (linear between ranks) in the direction where it is larger: HD95 as MONAI
/// has it. (medpy's hd95 takes one percentile of both directions together.) 100 gives the Hausdorff distance.
/// Infinite if one mask is empty, NaN if both are.
double hausdorff_distance(const SurfaceDistances& distances, Real percentile = 95);

/// The mean of the distances of both directions together: MONAI's symmetric average surface distance.
/// (medpy's assd is the mean of the two means.) Infinite if one mask is empty, NaN if both are.
double average_surface_distance(const SurfaceDistances& distances);

}  // namespace vox::nn

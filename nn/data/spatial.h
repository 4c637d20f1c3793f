#pragma once

#include <array>

#include <voxgrad/nn/data/augment.h>
#include <voxgrad/ops/grid_sample.h>

namespace vox::data {

struct SpatialOptions {
  vox::detail::ByName by_name{};
  OptionalTriple size = {};                   ///< of the result, around the centre of the volume
  std::array<Range, 3> rotation = {};         ///< angles in radians about D, H and W
  Range zoom = {1, 1};                        ///< above 1 magnifies
  bool zoom_axes_alike = true;                ///< else each axis has its own zoom
  Range elastic = {0, 0};                     ///< standard deviation of the displacements, in voxels
  Triple elastic_distance = 16;               ///< of the displacements that are drawn, in voxels
  std::array<double, 3> spacing = {1, 1, 1};  ///< of the voxels along D, H and W, for rotations
  GridSampleOptions::Padding padding = GridSampleOptions::Padding::zeros;
};

/// Rotates, zooms and deforms all tensors of the sample alike, with one resampling (grid_sample): linear for
/// floating dtypes, and the nearest voxel for others, such as labels. Rotation and zoom are about the centre
/// and uniform in their ranges. The elastic deformation adds displacements that are normal at points
/// `elastic_distance` apart and linear between them; their standard deviation is uniform in its range.
/// Without a rotation, zoom, deformation and size, the sample itself.
///
/// Throws ValueError for ranges that are not finite or in the wrong order, a zoom or spacing that is not
/// positive and an elastic_distance < 1, ShapeError for a size < 1 and tensors without (D, H, W) in common.
Sample random_spatial(const Sample& sample, const SpatialOptions& options, Generator& random);

}  // namespace vox::data

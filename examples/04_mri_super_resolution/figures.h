// The pictures of the results.
#pragma once

#include <filesystem>
#include <string>

#include "metrics.h"

namespace mri {

struct SliceFigure {
  std::string title;
  Size centre{};           ///< The voxel where the three planes cross.
  int64_t slab_begin = 0;  ///< The planes along D that were scored; marked unless they are the whole volume.
  int64_t slab_end = 0;
  ComparisonScores scores;
};

/// Draws axial, coronal and sagittal planes and a detail as rows; low resolution, trilinear, ours, truth and
/// the two absolute errors as columns. Planes are drawn in millimetres. Throws std::runtime_error if gnuplot
/// is missing or fails.
void draw_slices(const Comparison& comparison, const SliceFigure& figure, const std::filesystem::path& png);

}  // namespace mri

// The two pictures of the experiment.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "comparison.h"

namespace mri {

struct SliceFigure {
  std::string title;
  Size centre{};           ///< The voxel where the three planes cross.
  int64_t slab_begin = 0;  ///< The planes along D that were scored; marked unless they are the whole volume.
  int64_t slab_end = 0;
  ComparisonScores scores;
};

/// Draws axial, coronal and sagittal planes and a detail as rows; low resolution, trilinear, ours, truth and
/// the two absolute errors as columns. Planes stand upright and in millimetres: front or top of the head is
/// up, the subject's left is left. Throws std::runtime_error if gnuplot is missing or fails.
void draw_slices(const Comparison& comparison, const SliceFigure& figure, const std::filesystem::path& png);

/// What happened during training, one entry a step or an evaluation.
struct History {
  std::vector<float> loss;  ///< of step 1, 2, ...
  std::vector<int64_t> evaluated_steps;
  std::vector<float> evaluated_psnr;  ///< dB in the foreground of the evaluation slab after that step
};

/// Draws loss and PSNR against the step, with trilinear's PSNR as the line to beat.
/// Throws std::runtime_error if gnuplot is missing or fails.
void draw_curves(const History& history, double psnr_trilinear, const std::filesystem::path& png);

}  // namespace mri

// The pictures of the experiment, drawn by gnuplot, and files that are written completely or not at all.
#pragma once

#include <filesystem>
#include <functional>
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
/// the two absolute errors as columns. Planes stand upright and in millimetres: front or top of the head is
/// up, the subject's left is left. Throws std::runtime_error if gnuplot is missing or fails.
void draw_slices(const Comparison& comparison, const SliceFigure& figure, const std::filesystem::path& png);

/// Draws loss and PSNR against the step, with trilinear's PSNR as the line to beat.
/// Throws std::runtime_error if gnuplot is missing or fails.
void draw_curves(const History& history, double psnr_trilinear, const std::filesystem::path& png);

/// Calls `write` with a temporary name in the same folder and renames the result to `path`, so that a crash
/// never leaves half a file under the final name. The temporary name ends in the extension of `path`. Removes
/// the temporary file if `write` throws. Throws std::runtime_error if the rename fails.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const std::filesystem::path&)>& write);

/// `write_atomically` for a text.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace mri

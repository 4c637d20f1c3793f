// How close an image is to the truth: PSNR and SSIM, everywhere and inside the foreground; and the report.
//
// Most of a head scan is air, which every method reproduces. Scores over the whole image flatter all methods,
// so the foreground is scored separately.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "../common/program.h"

namespace mri {

/// Voxels of `truth` above 0.02 and all within 2 voxels of one along every axis (dilation by a 5x5x5 cube).
Mask foreground(const Volume& truth);

/// Peak signal-to-noise ratio in dB for intensities of range 1: `-10 log10(mean squared error)`, over the
/// voxels of `mask` or over all if it is null. Infinite for equal images. Throws std::invalid_argument if the
/// sizes differ or the mask selects nothing.
double psnr(const Volume& truth, const Volume& image, const Mask* mask = nullptr);

/// Structural similarity (Wang, Bovik, Sheikh, Simoncelli, 2004) with a uniform 7x7x7 window, k1 = 0.01, k2 =
/// 0.03, range 1 and sample (N - 1) covariances: the mean over windows that lie inside the volume and whose
/// centre is in `mask` (null: all). These are scikit-image's defaults. Throws std::invalid_argument if the
/// sizes differ, an axis is below 7, or no window counts.
double ssim(const Volume& truth, const Volume& image, const Mask* mask = nullptr);

/// Both scores of one image.
struct Scores {
  double psnr = 0;
  double ssim = 0;
};
Scores score(const Volume& truth, const Volume& image, const Mask* mask = nullptr);

/// The same region in four versions. `low` has half the sizes of the others.
struct Comparison {
  Volume low, trilinear, ours, truth;
};

/// The `slab` planes that start at `begin` along D, of all four volumes. Both numbers count planes of the
/// high resolution, and must be even.
Comparison planes(const Comparison& all, int64_t begin, int64_t slab);

/// One method's scores, inside the foreground of the truth and over all voxels.
struct RegionScores {
  Scores foreground, whole;
};

struct ComparisonScores {
  RegionScores trilinear, ours;
};

ComparisonScores score(const Comparison& comparison);

/// The experiment in numbers.
struct Report : RunFacts {
  ComparisonScores scores;
  std::optional<ComparisonScores> unseen;
};

/// The report as JSON (metrics.json), with `psnr_trilinear`, `psnr_ours`, `ssim_trilinear` and `ssim_ours`,
/// each an object of `foreground` and `whole`; the same four under `unseen` if a second scan was
/// evaluated. The PSNR of equal images is infinite and becomes null, as JSON has no infinity.
std::string to_json(const Report& report);

/// The scores as a table of three lines.
std::string to_table(const ComparisonScores& scores);

}  // namespace mri

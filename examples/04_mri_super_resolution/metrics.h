// How close an image is to the truth: PSNR and SSIM, everywhere or inside the foreground only.
//
// Most of a head scan is air, which every method gets right. Scores over the whole image flatter all methods,
// so the foreground is scored apart.
#pragma once

#include <cstdint>
#include <vector>

#include "volume.h"

namespace mri {

/// One byte per voxel, 1 where it counts.
using Mask = std::vector<uint8_t>;

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

}  // namespace mri

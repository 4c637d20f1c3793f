// metrics.json: the experiment in numbers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comparison.h"

namespace mri {

struct Report {
  std::string device;
  int threads = 0;
  double seconds = 0;  ///< Spent training, over all resumed runs.
  int64_t steps = 0;
  uint64_t seed = 0;
  int64_t parameters = 0;
  std::string volume;
  ComparisonScores scores;
  std::string unseen_volume;
  std::optional<ComparisonScores> unseen;
};

/// The report as JSON, with `psnr_trilinear`, `psnr_ours`, `ssim_trilinear` and `ssim_ours`, each an object
/// of `foreground` and `whole`; the same four again under `unseen`, if a second scan was evaluated. A PSNR of
/// equal images, infinite, becomes null, as JSON has no infinity.
std::string to_json(const Report& report);

/// Three lines for people.
std::string to_table(const ComparisonScores& scores);

}  // namespace mri

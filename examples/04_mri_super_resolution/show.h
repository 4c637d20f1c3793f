// Everything that the experiment leaves in its folder, beside weights and checkpoint.
#pragma once

#include <filesystem>
#include <optional>

#include "comparison.h"
#include "figures.h"
#include "report.h"
#include "split.h"

namespace mri {

struct Results {
  Report report;
  Comparison head;  ///< the whole head; scored on the planes of the slab
  Split split;
  std::optional<Comparison> unseen;  ///< the second head, all of which was scored
  History history;
};

/// Prints the scores and writes metrics.json, slices.png, unseen.png and curves.png to `folder`. A picture
/// that cannot be drawn, for want of gnuplot, is reported on stderr and left out.
void show(const Results& results, const std::filesystem::path& folder);

}  // namespace mri

// Ours against trilinear interpolation on one piece of a head.
#pragma once

#include "metrics.h"
#include "volume.h"

namespace mri {

/// The same region in four versions. `low` has half the sizes of the others.
struct Comparison {
  Volume low, trilinear, ours, truth;
};

/// `slab` planes starting at `begin` along D, of all four volumes; both are counted at high resolution and
/// even.
Comparison planes(const Comparison& all, int64_t begin, int64_t slab);

/// One method's scores, inside the foreground of the truth and over all voxels.
struct RegionScores {
  Scores foreground, whole;
};

struct ComparisonScores {
  RegionScores trilinear, ours;
};

ComparisonScores score(const Comparison& comparison);

}  // namespace mri

// Training data: random pairs of patches.
#pragma once

#include <cstdint>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "../common/sampling.h"

namespace mri {

/// Draws patches from the training planes, at places that show some of the head, each randomly mirrored along
/// each axis.
///
/// A sample is a pure function of (seed, index): there is no random state to save, and a resumed run sees the
/// same patches as an unbroken one.
class PatchSampler {
 public:
  /// Keeps references to both volumes; `truth` has twice the sizes of `low`. Patches have 16 low-resolution
  /// voxels on each side, fewer if the volume is small.
  /// Throws std::invalid_argument if not even patches of 8 fit.
  PatchSampler(const Volume& low, const Volume& truth, const Split& split, uint64_t seed);

  /// (1, P, P, P) of the low resolution, and the same box of the truth, (1, 2P, 2P, 2P).
  vox::data::Sample sample(int64_t index) const;

  static constexpr int64_t kBatchSize = 2;
  int64_t patch_size() const { return patch_; }

 private:
  struct Choice {
    Size origin;
    bool mirror[3];
  };
  Choice choose(int64_t step, int64_t sample) const;
  bool has_head(Size origin) const;

  const Volume& low_;
  const Volume& truth_;
  std::vector<Range> ranges_;  // training planes deep enough for a patch
  uint64_t seed_;
  int64_t patch_ = 16;
};

}  // namespace mri

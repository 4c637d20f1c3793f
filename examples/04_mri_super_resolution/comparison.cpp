#include "comparison.h"

namespace mri {

Comparison planes(const Comparison& all, int64_t begin, int64_t slab) {
  const auto cut = [&](const Volume& volume, int64_t scale) {
    return crop(volume, {begin / scale, 0, 0}, {slab / scale, volume.size[1], volume.size[2]});
  };
  return {cut(all.low, 2), cut(all.trilinear, 1), cut(all.ours, 1), cut(all.truth, 1)};
}

ComparisonScores score(const Comparison& comparison) {
  const Mask mask = foreground(comparison.truth);
  const auto both = [&](const Volume& image) {
    return RegionScores{score(comparison.truth, image, &mask), score(comparison.truth, image)};
  };
  return {both(comparison.trilinear), both(comparison.ours)};
}

}  // namespace mri
